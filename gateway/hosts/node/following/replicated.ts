/** Which tables of accounts a follower has a copy of. */

export interface Replicated {
  table: string;
  /** Its primary key. */
  key: string;
  /** Changes of these columns alone are no news. */
  quiet?: readonly string[];
  /** SQL condition on NEW and OLD rows, as `ROW`: rows for which it is false stay at home. */
  only?: string;
}

/** The audit log carries the numbers by which cached accounts are told to be old, so it comes last: after what it speaks of. */
export const REPLICATED: readonly Replicated[] = [
  { table: 'api_keys', key: 'id', quiet: ['last_used_at'] },
  { table: 'users', key: 'id', quiet: ['last_login_at'] },
  { table: 'projects', key: 'id' },
  { table: 'project_members', key: 'id' },
  { table: 'member_limits', key: 'id' },
  { table: 'access_requests', key: 'id' },
  { table: 'providers', key: 'id' },
  { table: 'join_tokens', key: 'id', quiet: ['nodes'] },
  { table: 'factory_tokens', key: 'id' },
  { table: 'model_settings', key: 'model' },
  { table: 'model_cards', key: 'model' },
  { table: 'catalogue', key: 'model' },
  { table: 'model_weights', key: 'model' },
  { table: 'peers', key: 'name' },
  // The installation's secret is each gateway's own.
  { table: 'settings', key: 'name', only: "ROW.name <> 'installation_secret'" },
  { table: 'audit_log', key: 'id' },
];
