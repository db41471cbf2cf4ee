/** The results of D1's public interface on every runtime: see d1-contract.ts. */
export const D1_EXPECTED = {
  exec: 2,
  run: { success: true, changes: 1, last_row_id: 7 },
  runUpdate: { success: true, changes: 2, last_row_id: 7 },
  all: [
    { id: 1, name: 'one', data: null },
    { id: 7, name: 'ünï☃ \u0000"\'\\', data: null },
  ],
  first: { id: 1, name: 'one', data: null },
  firstColumn: 'one',
  firstNothing: null,
  raw: [
    [1, 'one'],
    [7, 'ünï☃ \u0000"\'\\'],
  ],
  rawNames: [
    ['a', 'a'],
    [1, 2],
  ],
  blob: [0, 1, 127, 128, 255],
  blobEmpty: [],
  values: { yes: 1, big: 9007199254740991, real: -0.5, none: null },
  batch: [1, [{ n: 3 }]],
  batchError: 'D1_ERROR: UNIQUE constraint failed: t.id: SQLITE_CONSTRAINT (extended: SQLITE_CONSTRAINT_PRIMARYKEY)',
  afterRollback: 3,
  missingTable: 'D1_ERROR: no such table: nowhere: SQLITE_ERROR',
  syntax: 'D1_ERROR: near "SELEKT": syntax error at offset 0: SQLITE_ERROR',
  begin: 'refused',
  session: 3,
  drizzle: [[{ id: 'k' }], []],
};
