"""The HTTP API of ``lethe serve``: what a program or a browser can ask (docs/http.md).

It decides nothing: it appends requests to the log, and reads what the workers have published. May
import everything but `consumers.cli` and `consumers.demo`. Needs the extra ``server``.

- `serving`: the process: uvicorn, signals, one runtime
- `connections`: one connection, and what its client may delay
- `assembly`: the whole application of one process
- `app`: the API: routers, errors, the OpenAPI document
- `access`: from settings to who may call
- `guard`: what every request passes first: host, key, rate, size, time
- `metrics`: what Prometheus reads
- `keys`: who calls, and which models they may touch
- `services`: what routes use: the log, the store
- `appender`: requests into the log, acknowledged, many at a time
- `outcomes`: what became of a request
- `evidence`: the evidence of an erasure as one file, and the proof of a receipt
- `feeds`: new versions for everybody who listens
- `paths`: ids in paths, and in names of files
- `problems`: errors as ``application/problem+json``

Packages: `api` has the routes below ``/v1``, `opendsr` those below ``/opendsr/v1``, `console` the
pages, `index` what the topics have shown.
"""
