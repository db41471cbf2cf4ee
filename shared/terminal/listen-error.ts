/** Explains why listening on an address failed, for the person who configured the address. */
export function listenError(error: unknown, { host, port }: { host: string; port: number }): Error {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const address = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  const why = WHY[code];
  if (why === undefined) return error instanceof Error ? error : new Error(String(error));
  return new Error(`${address} ${why}`, { cause: error });
}

const WHY: Readonly<Record<string, string>> = {
  EADDRINUSE: 'is in use by another process: end that process, or choose another port',
  EADDRNOTAVAIL: 'is not an address of this machine; 0.0.0.0 or :: means all addresses',
  ENOTFOUND: 'is not an address of this machine; 0.0.0.0 or :: means all addresses',
  EACCES: 'can be opened only by root: choose a port above 1023',
};
