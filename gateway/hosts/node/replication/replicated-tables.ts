/** Account tables that a follower copies. */

export interface ReplicatedTable {
  table: string;
  /** Name of the primary key's column. */
  key: string;
  /** If only these columns of a row change, the row is not replicated again. */
  quiet?: readonly string[];
  /**
   * SQL condition for rows that are replicated, such as `ROW.name <> 'x'`. The triggers replace `ROW` with NEW or OLD.
   */
  only?: string;
}

/**
 * Replicated tables in order. The audit log is last, because its numbers invalidate cached accounts, so it must follow
 * the rows to which it refers.
 */
export const REPLICATED_TABLES: readonly ReplicatedTable[] = [
  { table: 'api_keys', key: 'id', quiet: ['last_used_at'] },
  { table: 'users', key: 'id', quiet: ['last_login_at'] },
  { table: 'projects', key: 'id' },
  { table: 'project_members', key: 'id' },
  { table: 'member_limits', key: 'id' },
  { table: 'access_requests', key: 'id' },
  { table: 'provider_rights', key: 'id' },
  { table: 'providers', key: 'id' },
  { table: 'join_tokens', key: 'id', quiet: ['nodes'] },
  { table: 'factory_tokens', key: 'id' },
  { table: 'model_settings', key: 'model' },
  { table: 'model_cards', key: 'model' },
  { table: 'catalogue', key: 'model' },
  { table: 'model_weights', key: 'model' },
  { table: 'peers', key: 'name' },
  // Each gateway has its own installation secret, so it is not copied.
  { table: 'settings', key: 'name', only: "ROW.name <> 'installation_secret'" },
  { table: 'audit_log', key: 'id' },
];
