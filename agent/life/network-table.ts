/** Shows the network of this agent's replica, for `otela-agent status`. */
import { printable } from '../../shared/terminal/printable.ts';
import type { NetworkRow } from '../host/control-protocol.ts';
import type { Mesh } from '../mesh/mesh.ts';

/** Maximum number of rows. A replica has more entries only because of sessions that have left, which are not shown. */
const ROWS_MAX = 10_000;

/** Rows for all sessions of the replica that have not left. */
export function networkRows(mesh: Mesh, own: string, issuerName: (issuer: string) => string): NetworkRow[] {
  const rows: NetworkRow[] = [];
  for (const { entry, liveness } of mesh.view()) {
    const { session, state, ticket, payload, issuer } = entry;
    if (state === 'LEFT' || rows.length >= ROWS_MAX) continue;
    rows.push({
      session,
      issuer: issuerName(issuer),
      provider: ticket.provider,
      cluster: ticket.cluster,
      state,
      liveness: session === own ? 'alive' : liveness,
      own: session === own,
      ...(payload?.host === undefined ? {} : { host: payload.host }),
      models: (payload?.models ?? []).map(({ id, state: ready }) => ({ id, state: ready })),
      gpus: (payload?.hardware.gpus ?? []).map(({ class: kind, count }) => ({ class: kind, count })),
      ...(payload?.job?.ends_at === undefined ? {} : { ends_at: payload.job.ends_at }),
    });
  }
  return rows.sort(byPlace);
}

function byPlace(a: NetworkRow, b: NetworkRow): number {
  return (
    a.issuer.localeCompare(b.issuer) ||
    a.provider.localeCompare(b.provider) ||
    a.cluster.localeCompare(b.cluster) ||
    (a.host ?? '').localeCompare(b.host ?? '') ||
    a.session.localeCompare(b.session)
  );
}

/** Length of a shown session id: enough to distinguish sessions and to pass it to `--session`. */
const SESSION_CHARS = 8;

/** A table for people. It has no colors, so that it can be piped. */
export function networkTable(rows: readonly NetworkRow[]): string[] {
  const serving = rows.filter(({ state, liveness }) => state === 'SERVING' && liveness !== 'suspected').length;
  const head = ['SESSION', 'STATE', 'PROVIDER', 'CLUSTER', 'HOST', 'HARDWARE', 'MODELS'];
  const cells = rows.map((row) =>
    [
      `${row.session.slice(0, SESSION_CHARS)}${row.own ? '*' : ''}`,
      row.liveness === 'alive' ? row.state : `${row.state} (${row.liveness})`,
      row.issuer === 'local' ? row.provider : `${row.provider}@${row.issuer}`,
      row.cluster,
      row.host ?? '-',
      row.gpus.map(({ class: kind, count }) => `${count} ${kind}`).join(', ') || 'no GPU',
      row.models.map(({ id, state }) => (state === 'ready' ? id : `${id} (${state})`)).join(', ') || '-',
      // printable, because other agents chose these names
    ].map(printable),
  );
  const widths = head.map((title, column) => Math.max(title.length, ...cells.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    `  ${row.map((cell, n) => cell.padEnd(widths[n] ?? 0)).join('  ')}`.trimEnd();
  return [
    `network: ${rows.length} ${rows.length === 1 ? 'session' : 'sessions'}, ${serving} serving`,
    line(head),
    ...cells.map(line),
  ];
}
