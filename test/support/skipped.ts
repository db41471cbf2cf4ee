/** A reporter for vitest that names each skipped test with its reason: vitest's own lists them on a terminal alone. */
import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';
import { ROOT } from './where.ts';

export default class SkippedReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    for (const { moduleId, children } of modules)
      for (const test of children.allTests('skipped')) {
        const result = test.result();
        const reason = result.state === 'skipped' && result.note !== undefined ? `: ${result.note}` : '';
        console.log(`skipped: ${relative(ROOT, moduleId)} > ${test.fullName}${reason}`);
      }
  }
}
