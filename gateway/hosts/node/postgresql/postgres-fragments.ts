import { sql } from 'drizzle-orm';
import type { SqlFragments } from '../../../accounts/sql-fragments.ts';

export const POSTGRES_FRAGMENTS: SqlFragments = {
  least: (a, b) => sql`least(${a}, ${b})`,
  greatest: (a, b) => sql`greatest(${a}, ${b})`,
  total: (column) => sql`cast(coalesce(sum(${column}), 0) as double precision)`,
  newAuditId: sql`nextval(pg_get_serial_sequence('audit_log', 'id'))`,
  jsonObject: (members) =>
    sql`json_build_object(${sql.join(
      Object.entries(members).flatMap(([name, value]) => [sql.raw(`'${name}'`), sql`cast(${value} as text)`]),
      sql`, `,
    )})`,
  jsonMembers: (text, name) => sql`json_each_text(cast(${text} as json)) AS ${sql.identifier(name)}`,
  jsonListHas: (list, value) =>
    sql`EXISTS (SELECT 1 FROM json_array_elements_text(${list}) AS one (value) WHERE one.value = ${value})`,
  jsonListWith: (list, value, without) =>
    sql`(SELECT coalesce(json_agg(one.value ORDER BY one.place), '[]') FROM
      (SELECT value, place FROM json_array_elements_text(${list}) WITH ORDINALITY AS listed (value, place)
       UNION ALL SELECT cast(${value} as text), 9223372036854775807) AS one WHERE one.value <> ${without})`,
};
