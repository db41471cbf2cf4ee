/**
 * The members of D1's types that the gateway and drizzle use. @cloudflare/workers-types cannot be loaded together with
 * @types/node.
 */
interface D1Meta {
  changes: number;
  last_row_id: number;
}

interface D1Result<Row = Record<string, unknown>> {
  success: true;
  results: Row[];
  meta: D1Meta;
}

interface D1PreparedStatement {
  bind(...values: unknown[]): D1PreparedStatement;
  first<Row = Record<string, unknown>>(): Promise<Row | null>;
  first<Value = unknown>(column: string): Promise<Value | null>;
  run<Row = Record<string, unknown>>(): Promise<D1Result<Row>>;
  all<Row = Record<string, unknown>>(): Promise<D1Result<Row>>;
  raw<Row = unknown[]>(options?: { columnNames?: boolean }): Promise<Row[]>;
}

interface D1Database {
  prepare(query: string): D1PreparedStatement;
  batch<Row = Record<string, unknown>>(statements: D1PreparedStatement[]): Promise<D1Result<Row>[]>;
  withSession(constraint?: string): Pick<D1Database, 'prepare' | 'batch'>;
  exec(query: string): Promise<{ count: number; duration: number }>;
}

/** R2 exists only on Cloudflare, so no bucket exists here. */
type R2Bucket = never;
