pragma cache_size = -400000;
pragma temp_store = memory;
create table t(a integer primary key, b text, c real);
insert into t select value, printf('%08d-%s', (value * 7919) % 500000, hex(value * value)), value / 3.0
  from generate_series(1, 500000);
create index i on t(b);
create temp table u as select b, a from t order by b desc;
select count(*), sum(a), min(b), max(b) from u;
update t set c = c + 1 where a % 7 = 0;
delete from t where a % 13 = 0;
select count(*), round(sum(c), 3) from t where b > '00200000';
select u.a, t.b from u join t on u.b = t.b where u.a % 50000 = 1 order by 1;
pragma integrity_check;
