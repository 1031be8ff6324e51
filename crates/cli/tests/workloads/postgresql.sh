# A PostgreSQL server of its own, as uid 65534. `init` makes its files; `serve` starts it, fills it, asks it from several
# clients at once and stops it.
# Usage: postgresql.sh BIN DATA init|serve
set -eu
bin=$1 data=$2
as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
if [ "$3" = init ]; then
    mkdir -m 700 "$data"
    chown 65534:65534 "$data"
    cd "$data"
    as "$bin/initdb" -D "$data/db" -A trust -U memfit -N --no-locale -E UTF8 >/dev/null
    exit
fi
cd "$data"
trap 'as "$bin/pg_ctl" -D "$data/db" -m immediate stop >/dev/null 2>&1 || :' EXIT
# shared_buffers are shared memory, work_mem is private to each server process.
as "$bin/pg_ctl" -D "$data/db" -w -t 240 -l "$data/server.log" start >/dev/null \
    -o "-c listen_addresses='' -k $data -c shared_buffers=4MB -c work_mem=64MB -c fsync=off -c max_parallel_workers=0 -c jit=off" \
    || { cat server.log >&2; exit 1; }
ask() { as "$bin/psql" -h "$data" -U memfit -d postgres -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }
ask "drop table if exists t" 2>/dev/null
ask "create table t as select i, md5(i::text) as h, i % 97 as g from generate_series(1, 200000) i" >/dev/null
for n in 1 2 3; do
    ask "select $n, count(*), sum(x.i), md5(string_agg(x.h, '' order by x.h desc)) from (select * from t order by h) x where g <> $n" >"out$n" &
done
wait
cat out1 out2 out3
ask "select g, count(*), min(h) from t group by g order by min(h) limit 5"
as "$bin/pg_ctl" -D "$data/db" -m fast stop >/dev/null
