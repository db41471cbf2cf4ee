import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { ADDRESSES_MAX } from './channel/channel-limits.ts';

/**
 * Interfaces of containers and virtual machines. Their addresses are the same on every host, so another machine cannot
 * reach this host by them.
 */
const VIRTUAL = /^(docker|br-|veth|virbr|cni|flannel|cali|lxc|lxd|podman|tun|tap|wg|zt|tailscale|utun)/;

/** Addresses that are valid on one link only. Another host cannot dial them without the interface's name. */
const LINK_LOCAL = /^(169\.254\.|fe[89ab][0-9a-f]:)/i;

/** Addresses (`address:port`) at which other agents may reach this host, private networks first. Bounded. */
export function hostAddresses(
  port: number,
  interfaces: NodeJS.Dict<NetworkInterfaceInfo[]> = networkInterfaces(),
): string[] {
  const found = Object.entries(interfaces).flatMap(([name, infos]) =>
    VIRTUAL.test(name) ? [] : (infos ?? []).filter((info) => !info.internal && !LINK_LOCAL.test(info.address)),
  );
  const ordered = [
    ...found.filter((info) => info.family === 'IPv4'),
    ...found.filter((info) => info.family === 'IPv6'),
  ];
  return [...new Set(ordered.map(({ address }) => withPort(address, port)))].slice(0, ADDRESSES_MAX);
}

export function withPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
