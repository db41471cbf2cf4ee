import { expect, it } from 'vitest';
import { weightsConfig } from '../../../agent/config/weights-config.ts';
import { settingsOf } from '../support/settings.ts';

it.each([
  ['1000000', 1_000_000],
  ['500GB', 5e11],
  ['2T', 2e12],
  ['1kb', 1000],
  ['2TiB', 2 * 2 ** 40],
  ['1.5Gi', 1.5 * 2 ** 30],
  ['100mib', 100 * 2 ** 20],
  ['3KiB', 3072],
])('a size of %s has %i bytes', (text, bytes) => {
  const config = weightsConfig(settingsOf({ 'weights-dir': ['/tmp'], 'weights-max': [text], 'weights-rate': [text] }));
  expect(config).toMatchObject({ limitBytes: bytes, rate: bytes });
});

it.each(['', '5i', '5iB', '0', 'GB', '5PB', '-1G', '1e9', '5 GB', '5GiBi'])('"%s" is not a size', (text) => {
  const read = () => weightsConfig(settingsOf({ 'weights-dir': ['/tmp'], 'weights-max': [text] }));
  expect(read).toThrow('is not a size such as 500GB');
});
