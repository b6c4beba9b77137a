"""The server behind the store, whatever lies in it. May import `layout`.

- `connection`: connecting, and errors that say what to do
- `barrier`: waiting for the disk
- `cluster`: which node of a cluster has a key, and what concerns each of its servers
- `tls`: certificates and password files
- `pipeline`: commands and Lua scripts in one round trip each
- `rewrite`: asking the server to rewrite its files without what was erased
- `row_keys`: row records encrypted, their keys in another store
- `sealed_files`: files of rows encrypted, their keys in that store, too
"""
