/** A reporter for vitest that names each test that was skipped, or is known to fail, with its reason: vitest's own lists the former on a terminal alone. */
import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';
import { ROOT } from './where.ts';

export default class SkippedReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    for (const { moduleId, children } of modules) {
      for (const test of children.allTests('skipped')) {
        const result = test.result();
        const reason = result.state === 'skipped' && result.note !== undefined ? `: ${result.note}` : '';
        console.log(`skipped: ${relative(ROOT, moduleId)} > ${test.fullName}${reason}`);
      }
      for (const test of children.allTests('passed')) {
        const { knownFailing } = test.meta();
        if (typeof knownFailing === 'string')
          console.log(`known failing: ${relative(ROOT, moduleId)} > ${test.fullName}: ${knownFailing}`);
      }
    }
  }
}
