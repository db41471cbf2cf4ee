import { createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { proxyAuthorization, proxyFor } from '../../../agent/host/proxy-variables.ts';
import { throughProxy } from '../../../agent/tunnel/open-websocket.ts';
import { httpGet } from '../../../agent/weights/sources/http-get.ts';

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

  it.each([
    ['http://u:50%off@p:1', 'u:50%off'],
    ['http://u:100%@p:1', 'u:100%'],
    ['http://u:%2@p:1', 'u:%2'],
    ['http://u:a%40b%2fc@p:1', 'u:a@b/c'],
    ['http://u:a@b@p:1', 'u:a@b'],
    ['http://u:%C3%A9@p:1', 'u:é'],
    ['http://u:é@p:1', 'u:é'],
    ['http://u%:%25@p:1', 'u%:%'],
    ['http://u@p:1', 'u:'],
    ['http://:secret@p:1', ':secret'],
  ])('takes name and password from %s as curl does', (address, wanted) => {
    const found = proxyFor(new URL('https://x.org'), { HTTPS_PROXY: address });
    expect(found?.host).toBe('p:1');
    const [, pass = ''] = (found && proxyAuthorization(found))?.split(' ') ?? [];
    expect(Buffer.from(pass, 'base64').toString()).toBe(wanted);
  });

  it('connects and downloads with a percent sign in the password', async () => {
    const heads: string[] = [];
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', (head) => {
        heads.push(String(head));
        socket.end('HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n');
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const env = { HTTPS_PROXY: `http://u:50%25off%@127.0.0.1:${port}` };
    const target = new URL('https://gw.example.org');
    const found = proxyFor(target, env);
    if (found === undefined) throw new Error('no proxy');
    await expect(throughProxy(found, target)).rejects.toThrow(/407/);
    await expect(httpGet({ url: target, secret: {}, env, signal: AbortSignal.timeout(30_000) })).rejects.toThrow();
    const pass = Buffer.from('u:50%off%').toString('base64');
    expect(heads).toHaveLength(2);
    for (const head of heads) expect(head).toContain(`Basic ${pass}\r\n`);
  });

  it('keeps bytes of a password that are no UTF-8', () => {
    expect(proxyAuthorization(new URL('http://u:%ff@p:1'))).toBe(
      `Basic ${Buffer.from('753aff', 'hex').toString('base64')}`,
    );
    expect(proxyAuthorization(new URL('http://p:1'))).toBeUndefined();
  });

  it.each(['http://u:secret/1@p:1', 'http://u:77/secret@p:1', 'http://u:77#secret@p:1', 'http://u:77?secret@p:1'])(
    'refuses %s with the variable and the remedy, and tells nothing of the password',
    (address) => {
      const use = () => proxy('https://x.org', { HTTPS_PROXY: address });
      expect(use).toThrow(/^HTTPS_PROXY .*# %23/);
      expect(use).toThrow(/^(?!.*(secret|77))/);
    },
  );

  it('refuses what it cannot use, without telling the password', () => {
    expect(() => proxy('https://x.org', { HTTPS_PROXY: 'socks5://user:secret@p:1080' })).toThrow(/socks5/);
    expect(() => proxy('https://x.org', { HTTPS_PROXY: 'http://user:secret@[' })).toThrow(/^(?!.*secret).*HTTPS_PROXY/);
  });
});
