"""Uploads of files from one peer to another: the protocol, without files and without a network.

The sender offers a file (`file.negotiate`), sends its chunks (`file.write`) side by side, and asks
for the end (`file.close`); each is an RMB request, and each is answered. `messages` reads and
writes their payloads, `sending.Sender` decides what the sender asks next, `receiving.Receiving`
keeps the account of one upload's chunks, and `admission` says which offers are taken.

    Sender                                            Receiving
    file.negotiate {size, name, sha256, cmd}   -->    admission: id of the upload
              <-- {id, have: 0, window: 16}
    file.write "file=<id>,chunk=0" 512 KiB     -->    expect(0), bytes to disk, wrote(0)
    file.write "file=<id>,chunk=1" 512 KiB     -->    ...
              <-- empty answers, in any order
    file.close {id}                            -->    all there? checksum, rename
              <-- {id, state: "done", name}

The id follows from what is offered, so that a sender that lost its memory finds its upload again:
it offers the file anew and is told which chunks are there. A chunk that is not answered is sent
again, and one that comes twice is answered twice; no message needs to arrive in order.
"""
