/** Delivery of the last record of a killed agent's session. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { deliverLastWill, lastWillOf } from '../../../agent/tunnel/last-will-message.ts';
import { ApiError, errorBody } from '../../../shared/openai/api-errors.ts';
import { atEnd } from '../../support/processes.ts';

const REFUSED = errorBody(new ApiError('permission_denied', 'The record is not signed.'));

it.each([
  ['a page of a proxy', '<html>Log in</html>', 2],
  ['a refusal of the gateway', REFUSED, 1],
])('is delivered again after %s, or not', async (_, page, tries) => {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    request
      .resume()
      .on('end', () => response.writeHead(asked.length === 1 ? 403 : 204).end(asked.length === 1 ? page : ''));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  const gateway = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const will = lastWillOf({ gateways: [gateway], ticket: { bytes: new Uint8Array(1) }, record: new Uint8Array(1) });
  await deliverLastWill(will, {});
  expect(asked).toEqual(Array(tries).fill('/agent/left'));
});
