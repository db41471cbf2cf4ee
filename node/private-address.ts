/** Addresses that no machine of the Internet can reach. */
import { BlockList, isIP } from 'node:net';

const PRIVATE = new BlockList();
/**
 * RFC 1918, loopback, link-local, RFC 6598 (shared address space), and the equivalents of IPv6 (RFC 4193, RFC 4291).
 */
const PRIVATE_SUBNETS: readonly [network: string, bits: number, family: 'ipv4' | 'ipv6'][] = [
  ['10.0.0.0', 8, 'ipv4'],
  ['172.16.0.0', 12, 'ipv4'],
  ['192.168.0.0', 16, 'ipv4'],
  ['127.0.0.0', 8, 'ipv4'],
  ['169.254.0.0', 16, 'ipv4'],
  ['100.64.0.0', 10, 'ipv4'],
  ['::1', 128, 'ipv6'],
  ['fc00::', 7, 'ipv6'],
  ['fe80::', 10, 'ipv6'],
];
for (const [network, bits, family] of PRIVATE_SUBNETS) PRIVATE.addSubnet(network, bits, family);

/** True if no machine of the Internet can reach the address. False if the text is not an address. */
export function isPrivateAddress(address: string): boolean {
  return isIP(address) !== 0 && PRIVATE.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}
