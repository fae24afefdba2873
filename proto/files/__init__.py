"""File uploads from one peer to another: the protocol, without file system and network access.

The sender offers a file (`file.negotiate`), sends its chunks (`file.write`) concurrently, and asks
for completion (`file.close`). Each of these is an RMB request, and each is answered. `messages`
encodes and decodes their payloads, `sending.Sender` decides which request the sender makes next,
`receiving.Receiving` tracks the chunks of one upload, and `admission` decides which offers are
accepted.

    Sender                                            Receiving
    file.negotiate {size, name, sha256, cmd}   -->    admission: id of the upload
              <-- {id, have: 0, window: 16}
    file.write "file=<id>,chunk=0" 512 KiB     -->    expect(0), bytes to disk, wrote(0)
    file.write "file=<id>,chunk=1" 512 KiB     -->    ...
              <-- empty answers, in any order
    file.close {id}                            -->    complete? checksum, rename
              <-- {id, state: "done", name}

The id is derived from the offer, so that a sender that lost its state finds its upload again: it
repeats the offer, and the answer lists the chunks that the receiver has. A chunk without an answer
is sent again, and a chunk that arrives twice is answered twice. Messages may arrive in any order.
"""
