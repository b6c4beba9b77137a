import numpy as np, time
from tests.support.pipelines import *
from tests.support import pipeline_in_decimals as pd
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.preprocess.transformation.layout import lay_out
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.rounded.solution import PipelineSolution
from lethe.engine.fit.objective import Kind
rng=np.random.default_rng(0)
n=60
for seed in range(6):
    rng=np.random.default_rng(seed)
    rows=draw_rows(EVERY_KIND,n,rng); y=draw_target(EVERY_KIND,rows,rng)
    st=Settings(EVERY_KIND,Kind.LINEAR,1.0,True,False)
    table=read_table(EVERY_KIND,rows)
    raw=RawColumns(st,lay_out(EVERY_KIND,table))
    w=np.ones(n) if seed<3 else rng.uniform(.1,3,n)
    R=raw.rows(table,y[:,None],w)
    t=time.time(); s=PipelineSolution.of_rows(raw,table.vocabularies,R); t=time.time()-t
    want=pd.minimiser(EVERY_KIND,rows,y,w)
    print(raw.width, s.minimiser.rounded, (s.minimiser.theta==want).all(), t, abs(s.minimiser.theta-want).max())
    s2=s.changed(R.take(np.arange(10)),None)
    fewer={k:v[10:] for k,v in rows.items()}
    want=pd.minimiser(EVERY_KIND,fewer,y[10:],w[10:])
    th=s2.minimiser.theta
    print(th.shape,want.shape, (th==want).all() if th.shape==want.shape else '-')
    F=s.features(R)
    b=np.linalg.solve(F.X.T@(w[:,None]*F.X)+np.diag(s.penalty),F.X.T@(w*y)); print(abs(b-s.minimiser.theta[:,0]).max(), abs(s.dual_rows(R.X[:2])-np.linalg.solve(F.X.T@(w[:,None]*F.X)+np.diag(s.penalty),F.X[:2].T).T).max())
