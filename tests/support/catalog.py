"""A database's schema as comparable text: whatever differs, differs here."""

from __future__ import annotations

import re

from suimon.db.connect import Connection

_TIME = r'"\d{4}-\d\d-\d\dT[^"]+"'

# The runner's own tables are no part of schema.sql.
_OURS = "n.nspname = 'suimon' and c.relname not in ('migrations', 'meta')"

_QUERIES = {
    "relation": f"""
        select c.relname, c.relkind, c.relpersistence, c.reloptions, c.relfilenode is not null
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where {_OURS} and c.relname not like 'migrations%' and c.relname not like 'meta%'""",
    "column": f"""
        select c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity, a.attgenerated, a.attstorage, a.attstattarget, a.attcollation,
               pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid
        join pg_namespace n on n.oid = c.relnamespace
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where {_OURS} and c.relkind in ('r', 'v', 'p') and a.attnum > 0 and not a.attisdropped""",
    "constraint": f"""
        select c.relname, o.conname, o.contype, o.condeferrable, o.convalidated,
               pg_get_constraintdef(o.oid)
        from pg_constraint o
        join pg_class c on c.oid = o.conrelid
        join pg_namespace n on n.oid = c.relnamespace
        where {_OURS}""",
    "index": """
        select tablename, indexname, indexdef from pg_indexes
        where schemaname = 'suimon' and tablename not in ('migrations', 'meta')""",
    "function": """
        select p.proname, pg_get_function_identity_arguments(p.oid), pg_get_functiondef(p.oid)
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'suimon' and p.prokind in ('f', 'p')""",
    "trigger": f"""
        select c.relname, t.tgname, t.tgenabled, pg_get_triggerdef(t.oid)
        from pg_trigger t
        join pg_class c on c.oid = t.tgrelid
        join pg_namespace n on n.oid = c.relnamespace
        where {_OURS} and not t.tgisinternal""",
    "enum": """
        select t.typname, e.enumsortorder, e.enumlabel
        from pg_enum e
        join pg_type t on t.oid = e.enumtypid
        join pg_namespace n on n.oid = t.typnamespace
        where n.nspname = 'suimon'""",
    "sequence": """
        select sequencename, data_type::text, start_value, increment_by, cache_size, cycle
        from pg_sequences where schemaname = 'suimon'""",
    "statistics": """
        select stxname, pg_get_statisticsobjdef(s.oid)
        from pg_statistic_ext s join pg_namespace n on n.oid = s.stxnamespace
        where n.nspname = 'suimon'""",
    "comment": f"""
        select c.relname, d.objsubid, d.description
        from pg_description d
        join pg_class c on c.oid = d.objoid and d.classoid = 'pg_class'::regclass
        join pg_namespace n on n.oid = c.relnamespace
        where {_OURS}""",
}


def catalog(conn: Connection) -> list[str]:
    """One sorted line for each thing in the schema."""
    lines = []
    for kind, query in _QUERIES.items():
        lines += [f"{kind} {row}" for row in conn.execute(query).fetchall()]
    return sorted(lines)


def seed_rows(conn: Connection) -> list[str]:
    """The rows that the schema itself inserts, without their times: they belong to it too."""
    tables = conn.execute(
        """select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
           where n.nspname = 'suimon' and c.relkind = 'r'
             and c.relname not in ('migrations', 'meta')"""
    ).fetchall()
    lines = []
    for (table,) in tables:
        rows = conn.execute(f'select to_jsonb(t)::text from suimon."{table}" t').fetchall()
        lines += [f"{table} {re.sub(_TIME, 'TIME', row[0])}" for row in rows]
    return sorted(lines)
