import numpy as np, time
from lethe.engine.preprocess.input.columns import Numeric, OneHot, TargetEncode
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.preprocess.transformation.layout import lay_out
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.preprocess.rounded.solution import PipelineSolution
from lethe.engine.fit.objective import Kind
import cProfile,pstats
for p,gaps in ((20,0),(20,5),(50,0),(50,10),(100,0),(100,20),(200,0)):
    rng=np.random.default_rng(0); n=1000
    X=rng.normal(size=(n,p))*3+50
    for j in range(gaps): X[rng.random(n)<.1,j]=np.nan
    cols={f"c{j}":Numeric() for j in range(p)}
    rows={f"c{j}":X[:,j] for j in range(p)}; y=rng.normal(size=n)
    st=Settings(cols,Kind.LINEAR,1.0,True,False)
    table=read_table(cols,rows); raw=RawColumns(st,lay_out(cols,table))
    R=raw.rows(table,y[:,None],np.ones(n))
    t=time.perf_counter(); s=PipelineSolution.of_rows(raw,table.vocabularies,R); t0=time.perf_counter()-t
    ts=[]
    for i in range(5):
        t=time.perf_counter(); s=s.changed(R.take(np.array([i])),None); ts.append(time.perf_counter()-t)
    print(p,gaps,raw.width,'fit %.1f change %.1f ms'%(t0*1e3,np.median(ts)*1e3), s.minimiser.rounded)
    if p in(20,100):
        pr=cProfile.Profile(); pr.enable(); s.changed(R.take(np.array([9])),None); pr.disable(); pstats.Stats(pr).sort_stats('tottime').print_stats(8)
