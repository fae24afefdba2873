"""Description of the test runtime as text: its types, storage, calls, events and errors.

Names, numbers, hashers and the order of fields are those of tfchain, spec 149, as far as clients of
the Reliable Message Bus use them. The numbers of other calls, events and errors are unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from chain.devchain.types import Enum, Struct, Variant, variants

SPEC_NAME: Final = "substrate-threefold"
SPEC_VERSION: Final = 149
TRANSACTION_VERSION: Final = 2
SS58_PREFIX: Final = 42
BLOCK_HASH_COUNT: Final = 2400
EXISTENTIAL_DEPOSIT: Final = 500
TOKEN_DECIMALS: Final = 7
TOKEN_SYMBOL: Final = "TFT"

SYSTEM: Final = 0
TIMESTAMP: Final = 1
BALANCES: Final = 20
TRANSACTION_PAYMENT: Final = 21
TFGRID: Final = 25


@dataclass(frozen=True, slots=True)
class Item:
    """A storage item: a plain value, or a map if it has a key."""

    name: str
    value: str
    default: bytes | None
    """None if the item may have no value."""

    key: str = ""
    hasher: str = ""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is part of the metadata."""

    name: str
    kind: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Pallet:
    """One module of the runtime."""

    index: int
    name: str
    storage: tuple[Item, ...] = ()
    calls: str = ""
    events: str = ""
    errors: str = ""
    constants: tuple[Constant, ...] = ()


def _errors(numbered: dict[str, int]) -> tuple[Variant, ...]:
    """Return cases 0 to the highest number: libraries find an error by its position in the list."""
    names = {number: name for name, number in numbered.items()}
    return tuple(
        Variant(number, names.get(number, f"NotRaised{number}")) for number in range(max(names) + 1)
    )


TFGRID_ERRORS: Final = {
    "TwinNotExists": 27,
    "TwinWithPubkeyExists": 28,
    "UnauthorizedToUpdateTwin": 30,
    "UserDidNotSignTermsAndConditions": 39,
    "RelayTooShort": 47,
    "RelayTooLong": 48,
    "InvalidRelay": 49,
    "DocumentLinkInputTooShort": 105,
    "DocumentLinkInputTooLong": 106,
    "InvalidDocumentLinkInput": 107,
    "DocumentHashInputTooShort": 108,
    "DocumentHashInputTooLong": 109,
    "InvalidDocumentHashInput": 110,
    "InvalidRelayAddress": 113,
}

_TWIN_FIELDS: Final = "relay: Option<BoundedVec<u8, 1024>>, pk: Option<BoundedVec<u8, 128>>"

_ERA: Final = (
    Variant(0, "Immortal"),
    *(Variant(first, f"Mortal{first}", "u8") for first in range(1, 256)),
)

SIGNED_EXTENSIONS: Final = (
    ("CheckNonZeroSender", "()"),
    ("CheckSpecVersion", "u32"),
    ("CheckTxVersion", "u32"),
    ("CheckGenesis", "H256"),
    ("CheckMortality", "H256"),
    ("CheckNonce", "()"),
    ("CheckWeight", "()"),
    ("ChargeTransactionPayment", "()"),
)
"""Name (also of the type), and the type of what is signed in addition to the fields."""

NAMED: Final[dict[str, Struct | Enum]] = {
    "Runtime": Struct("tfchain_runtime::Runtime"),
    "AccountId": Struct("sp_core::crypto::AccountId32", "[u8; 32]"),
    "H256": Struct("primitive_types::H256", "[u8; 32]"),
    "AccountData": Struct(
        "pallet_balances::types::AccountData",
        "free: u128, reserved: u128, frozen: u128, flags: ExtraFlags",
        "Balance: u128",
    ),
    "ExtraFlags": Struct("pallet_balances::types::ExtraFlags", "u128"),
    "AccountInfo": Struct(
        "frame_system::AccountInfo",
        "nonce: u32, consumers: u32, providers: u32, sufficients: u32, data: AccountData",
        "Nonce: u32, AccountData: AccountData",
    ),
    "Weight": Struct(
        "sp_weights::weight_v2::Weight", "ref_time: Compact<u64>, proof_size: Compact<u64>"
    ),
    "DispatchClass": Enum(
        "frame_support::dispatch::DispatchClass", variants("Normal", "Operational", "Mandatory")
    ),
    "Pays": Enum("frame_support::dispatch::Pays", variants("Yes", "No")),
    "DispatchInfo": Struct(
        "frame_support::dispatch::DispatchInfo",
        "weight: Weight, class: DispatchClass, pays_fee: Pays",
    ),
    "ModuleError": Struct("sp_runtime::ModuleError", "index: u8, error: [u8; 4]"),
    "TokenError": Enum(
        "sp_runtime::TokenError",
        variants(
            "FundsUnavailable",
            "OnlyProvider",
            "BelowMinimum",
            "CannotCreate",
            "UnknownAsset",
            "Frozen",
            "Unsupported",
            "CannotCreateHold",
            "NotExpendable",
        ),
    ),
    "ArithmeticError": Enum(
        "sp_arithmetic::ArithmeticError", variants("Underflow", "Overflow", "DivisionByZero")
    ),
    "TransactionalError": Enum(
        "sp_runtime::TransactionalError", variants("LimitReached", "NoLayer")
    ),
    "DispatchError": Enum(
        "sp_runtime::DispatchError",
        variants(
            "Other",
            "CannotLookup",
            "BadOrigin",
            "Module(ModuleError)",
            "ConsumerRemaining",
            "NoProviders",
            "TooManyConsumers",
            "Token(TokenError)",
            "Arithmetic(ArithmeticError)",
            "Transactional(TransactionalError)",
            "Exhausted",
            "Corruption",
            "Unavailable",
        ),
    ),
    "Phase": Enum(
        "frame_system::Phase", variants("ApplyExtrinsic(u32)", "Finalization", "Initialization")
    ),
    "EventRecord": Struct(
        "frame_system::EventRecord",
        "phase: Phase, event: RuntimeEvent, topics: Vec<H256>",
        "E: RuntimeEvent, T: H256",
    ),
    "Digest": Struct("sp_runtime::generic::digest::Digest", "logs: Vec<DigestItem>"),
    "DigestItem": Enum(
        "sp_runtime::generic::digest::DigestItem",
        (
            Variant(6, "PreRuntime", "[u8; 4], Vec<u8>"),
            Variant(4, "Consensus", "[u8; 4], Vec<u8>"),
            Variant(5, "Seal", "[u8; 4], Vec<u8>"),
            Variant(0, "Other", "Vec<u8>"),
            Variant(8, "RuntimeEnvironmentUpdated"),
        ),
    ),
    "Era": Enum("sp_runtime::generic::era::Era", _ERA),
    "MultiAddress": Enum(
        "sp_runtime::multiaddress::MultiAddress",
        variants(
            "Id(AccountId)",
            "Index(Compact<()>)",
            "Raw(Vec<u8>)",
            "Address32([u8; 32])",
            "Address20([u8; 20])",
        ),
        "AccountId: AccountId, AccountIndex: ()",
    ),
    "Ed25519Signature": Struct("sp_core::ed25519::Signature", "[u8; 64]"),
    "Sr25519Signature": Struct("sp_core::sr25519::Signature", "[u8; 64]"),
    "EcdsaSignature": Struct("sp_core::ecdsa::Signature", "[u8; 65]"),
    "MultiSignature": Enum(
        "sp_runtime::MultiSignature",
        variants("Ed25519(Ed25519Signature)", "Sr25519(Sr25519Signature)", "Ecdsa(EcdsaSignature)"),
    ),
    "CheckNonZeroSender": Struct(
        "frame_system::extensions::check_non_zero_sender::CheckNonZeroSender"
    ),
    "CheckSpecVersion": Struct("frame_system::extensions::check_spec_version::CheckSpecVersion"),
    "CheckTxVersion": Struct("frame_system::extensions::check_tx_version::CheckTxVersion"),
    "CheckGenesis": Struct("frame_system::extensions::check_genesis::CheckGenesis"),
    "CheckMortality": Struct("frame_system::extensions::check_mortality::CheckMortality", "Era"),
    "CheckNonce": Struct("frame_system::extensions::check_nonce::CheckNonce", "Compact<u32>"),
    "CheckWeight": Struct("frame_system::extensions::check_weight::CheckWeight"),
    "ChargeTransactionPayment": Struct(
        "pallet_transaction_payment::ChargeTransactionPayment", "Compact<u128>"
    ),
    "UncheckedExtrinsic": Struct(
        "sp_runtime::generic::unchecked_extrinsic::UncheckedExtrinsic",
        "Vec<u8>",
        "Address: MultiAddress, Call: RuntimeCall, Signature: MultiSignature, "
        f"Extra: ({', '.join(name for name, _ in SIGNED_EXTENSIONS)})",
    ),
    "EntityProof": Struct(
        "pallet_tfgrid::types::EntityProof", "entity_id: u32, signature: Vec<u8>"
    ),
    "Twin": Struct(
        "pallet_tfgrid::types::Twin",
        "id: u32, account_id: AccountId, relay: Option<BoundedVec<u8, 1024>>, "
        "entities: Vec<EntityProof>, pk: Option<BoundedVec<u8, 128>>",
        "AccountId: AccountId",
    ),
    "TermsAndConditions": Struct(
        "pallet_tfgrid::types::TermsAndConditions",
        "account_id: AccountId, timestamp: u64, document_link: BoundedVec<u8, 2048>, "
        "document_hash: BoundedVec<u8, 50>",
    ),
    "SystemCall": Enum("frame_system::pallet::Call", (Variant(0, "remark", "remark: Vec<u8>"),)),
    "SystemEvent": Enum(
        "frame_system::pallet::Event",
        (
            Variant(0, "ExtrinsicSuccess", "dispatch_info: DispatchInfo"),
            Variant(
                1, "ExtrinsicFailed", "dispatch_error: DispatchError, dispatch_info: DispatchInfo"
            ),
            Variant(3, "NewAccount", "account: AccountId"),
        ),
    ),
    "TimestampCall": Enum(
        "pallet_timestamp::pallet::Call", (Variant(0, "set", "now: Compact<u64>"),)
    ),
    "BalancesEvent": Enum(
        "pallet_balances::pallet::Event",
        (
            Variant(0, "Endowed", "account: AccountId, free_balance: u128"),
            Variant(7, "Deposit", "who: AccountId, amount: u128"),
            Variant(8, "Withdraw", "who: AccountId, amount: u128"),
        ),
    ),
    "TransactionPaymentEvent": Enum(
        "pallet_transaction_payment::pallet::Event",
        (Variant(0, "TransactionFeePaid", "who: AccountId, actual_fee: u128, tip: u128"),),
    ),
    "TfgridCall": Enum(
        "pallet_tfgrid::pallet::Call",
        (
            Variant(17, "create_twin", _TWIN_FIELDS),
            Variant(18, "update_twin", _TWIN_FIELDS),
            Variant(
                25,
                "user_accept_tc",
                "document_link: BoundedVec<u8, 2048>, document_hash: BoundedVec<u8, 50>",
            ),
        ),
    ),
    "TfgridEvent": Enum(
        "pallet_tfgrid::pallet::Event",
        (
            Variant(11, "TwinStored", "Twin"),
            Variant(12, "TwinUpdated", "Twin"),
            Variant(13, "TwinEntityStored", "u32, u32, Vec<u8>"),
            Variant(14, "TwinEntityRemoved", "u32, u32"),
            Variant(15, "TwinDeleted", "u32"),
            Variant(16, "TwinAccountBounded", "u32, AccountId"),
        ),
    ),
    "TfgridError": Enum("pallet_tfgrid::pallet::Error", _errors(TFGRID_ERRORS)),
}

PALLETS: Final = (
    Pallet(
        SYSTEM,
        "System",
        storage=(
            Item("Account", "AccountInfo", bytes(16 + 64), "AccountId", "Blake2_128Concat"),
            Item("Number", "u32", bytes(4)),
            Item("Digest", "Digest", b"\0"),
            Item("ParentHash", "H256", bytes(32)),
            Item("Events", "Vec<EventRecord>", b"\0"),
            Item("EventCount", "u32", bytes(4)),
        ),
        calls="SystemCall",
        events="SystemEvent",
        constants=(
            Constant("BlockHashCount", "u32", BLOCK_HASH_COUNT.to_bytes(4, "little")),
            Constant("SS58Prefix", "u16", SS58_PREFIX.to_bytes(2, "little")),
        ),
    ),
    Pallet(
        TIMESTAMP,
        "Timestamp",
        storage=(Item("Now", "u64", bytes(8)),),
        calls="TimestampCall",
        constants=(Constant("MinimumPeriod", "u64", (3000).to_bytes(8, "little")),),
    ),
    Pallet(
        BALANCES,
        "Balances",
        storage=(Item("TotalIssuance", "u128", bytes(16)),),
        events="BalancesEvent",
        constants=(
            Constant("ExistentialDeposit", "u128", EXISTENTIAL_DEPOSIT.to_bytes(16, "little")),
        ),
    ),
    Pallet(TRANSACTION_PAYMENT, "TransactionPayment", events="TransactionPaymentEvent"),
    Pallet(
        TFGRID,
        "TfgridModule",
        storage=(
            Item("Twins", "Twin", None, "u32", "Blake2_128Concat"),
            Item("TwinIdByAccountID", "u32", None, "AccountId", "Blake2_128Concat"),
            Item("TwinID", "u32", bytes(4)),
            Item(
                "UsersTermsAndConditions",
                "Vec<TermsAndConditions>",
                None,
                "AccountId",
                "Blake2_128Concat",
            ),
            Item("TwinBoundedAccountID", "AccountId", None, "u32", "Blake2_128Concat"),
        ),
        calls="TfgridCall",
        events="TfgridEvent",
        errors="TfgridError",
    ),
)
