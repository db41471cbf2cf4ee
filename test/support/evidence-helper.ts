/**
 * A mock of a provider's helper program, without a confidential VM: it returns the 64 bytes that it was asked to report
 * over.
 */
import { join } from 'node:path';
import { temporaryDirectory } from './processes.ts';
import { program } from './program.ts';

const HELPER = '#!/bin/sh\nprintf "stand-in report over %s" "$1$OTELA_TOKEN$HOME"\n';

/** Returns the arguments of `otela-agent start` that use the mock. */
export async function evidenceArgs(): Promise<string[]> {
  const helper = program(join(await temporaryDirectory('evidence'), 'helper'), HELPER);
  return ['--evidence-command', helper, '--evidence-kinds', 'tdx,nvidia'];
}

export const reportOf = (reportData: Uint8Array) => `stand-in report over ${Buffer.from(reportData).toString('hex')}`;
