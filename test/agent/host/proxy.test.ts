import { describe, expect, it } from 'vitest';
import { proxyFor } from '../../../agent/host/proxy.ts';

const proxy = (url: string, env: Record<string, string>) => proxyFor(new URL(url), env)?.href;
const HTTPS = { HTTPS_PROXY: 'http://p:3128' };

describe('proxyFor', () => {
  it('goes directly without variables', () => {
    expect(proxy('https://gw.example.org', {})).toBeUndefined();
  });

  it('has one proxy for secure and one for plain connections', () => {
    const env = { https_proxy: 'http://s:1', http_proxy: 'http://p:2' };
    expect(proxy('wss://gw.example.org', env)).toBe('http://s:1/');
    expect(proxy('https://gw.example.org', env)).toBe('http://s:1/');
    expect(proxy('ws://gw.example.org', env)).toBe('http://p:2/');
  });

  it('takes lower case before upper case, and ALL_PROXY last', () => {
    expect(proxy('https://x.org', { HTTPS_PROXY: 'http://up:1', https_proxy: 'http://low:1' })).toBe('http://low:1/');
    expect(proxy('https://x.org', { ALL_PROXY: 'http://all:1' })).toBe('http://all:1/');
    expect(proxy('https://x.org', { ALL_PROXY: 'http://all:1', HTTPS_PROXY: '' })).toBe('http://all:1/');
  });

  it('does not take HTTP_PROXY from a stranger’s request header', () => {
    expect(proxy('http://x.org', { HTTP_PROXY: 'http://evil:1', REQUEST_METHOD: 'GET' })).toBeUndefined();
  });

  it('understands a proxy without a scheme', () => {
    expect(proxy('https://x.org', { HTTPS_PROXY: 'proxy.example.org:3128' })).toBe('http://proxy.example.org:3128/');
  });

  it.each([
    ['gw.example.org', 'gw.example.org'],
    ['gw.example.org', 'example.org'],
    ['gw.example.org', '.example.org'],
    ['gw.example.org', '*.example.org'],
    ['gw.example.org', 'a.org, EXAMPLE.ORG'],
    ['gw.example.org', 'a.org example.org'],
    ['gw.example.org', '*'],
    ['gw.example.org:8443', 'example.org:8443'],
    ['10.1.2.3', '10.0.0.0/8'],
    ['10.1.2.3', '10.1.2.3'],
    ['[fd00::1]', 'fd00::/8'],
    ['[fd00::1]', '[fd00::1]'],
    ['[fd00::1]:8443', '[fd00::1]:8443'],
    ['localhost:1', ''],
    ['127.0.0.9', ''],
    ['[::1]', ''],
  ])('goes directly to %s with NO_PROXY=%s', (host, list) => {
    expect(proxy(`https://${host}`, { ...HTTPS, NO_PROXY: list })).toBeUndefined();
  });

  it.each([
    ['notexample.org', 'example.org'],
    ['gw.example.org', 'example.org:8443'],
    ['gw.example.org', '10.0.0.0/8'],
    ['11.1.2.3', '10.0.0.0/8'],
    ['10.1.2.3', '10.0.0.0/99'],
    ['210.1.2.3', '10.1.2.3'],
    ['1.10.1.2', '10.1.2'],
    ['gw.example.org', ',, .,'],
  ])('uses the proxy for %s with NO_PROXY=%s', (host, list) => {
    expect(proxy(`https://${host}`, { ...HTTPS, NO_PROXY: list })).toBe('http://p:3128/');
  });

  it('refuses what it cannot use, without telling the password', () => {
    expect(() => proxy('https://x.org', { HTTPS_PROXY: 'socks5://user:secret@p:1080' })).toThrow(/socks5/);
    expect(() => proxy('https://x.org', { HTTPS_PROXY: 'http://user:secret@[' })).toThrow(/^(?!.*secret).*HTTPS_PROXY/);
  });
});
