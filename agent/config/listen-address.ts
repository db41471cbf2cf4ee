import { UsageError } from '../../shared/command-line/index.ts';
import { parseAddress } from '../mesh/channel/dial-channel.ts';

/**
 * Parses `HOST:PORT` and `[::1]:PORT`; `:PORT` and `PORT` listen on this machine only. Port 0 means any free port.
 * @throws UsageError
 */
export function listenAddress(flag: string, text: string): { host: string; port: number } {
  const bare = /^:?(\d{1,5})$/.exec(text)?.[1];
  if (bare !== undefined && Number(bare) <= 65_535) return { host: '127.0.0.1', port: Number(bare) };
  const free = /^(.*):0$/.exec(text)?.[1];
  const address = parseAddress(free === undefined ? text : `${free}:1`);
  if (address === undefined) throw new UsageError(`${flag}: "${text}" is not HOST:PORT`);
  return free === undefined ? address : { ...address, port: 0 };
}
