"""Who computes a pass over rows in files, if it is not the process that asks for it.

- `dask_cluster`: a Dask cluster, or processes of this machine (extra ``dask``)
- `spark`: a Spark cluster, or cores of this machine (extra ``spark``)

Each implements `engine.rowstore.passes.Workers`.
"""
