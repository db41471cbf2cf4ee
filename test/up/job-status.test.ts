/** What squeue prints about a job, as words for a person. */
import { expect, it } from 'vitest';
import { parseStatus, statusScript, statusText } from '../../up/job/job-status.ts';

const NOW = new Date('2026-11-27T10:00:00Z');
/** As the script prints it. */
const printed = (out: string) => `otela-status 1\n${out}`;
const text = (out: string) => statusText('7', parseStatus('7', out), NOW);

it.each([
  [
    'job=PENDING|Resources|2026-11-27T10:30:00|\nwaits=5\nwaits=7\nwaits=9\n',
    'job 7 waits (Resources, place 2 of 3 in the queue, starts in about 30 min)',
  ],
  [
    'job=PENDING|Priority|2026-11-27T22:00:00|\nwaits=7',
    'job 7 waits (Priority, place 1 of 1 in the queue, starts in about 12 h)',
  ],
  ['job=PENDING|QOSMaxJobsPerUserLimit|N/A|\n', 'job 7 waits (QOSMaxJobsPerUserLimit)'],
  ['job=RUNNING|None|2026-11-27T09:00:00|n1\n', 'job 7 runs on n1: the engine loads'],
  ['job=TIMEOUT|TimeLimit|2026-11-27T09:00:00|n1\n', 'job 7 has ended (TIMEOUT)'],
  ['slurm_load_jobs error: Invalid job id specified\n', 'job 7 has ended (ended)'],
  [
    'slurm_load_jobs error: Unable to contact slurm controller\n',
    'the state of job 7 is unknown: slurm_load_jobs error: Unable to contact slurm controller',
  ],
])('%j', (out, words) => {
  expect(text(printed(out))).toBe(words);
  expect(text(`Welcome to Alps\nwaits=7\n${printed(out)}`)).toBe(words);
});

it('a shell that runs no command of Slurm says nothing about the job', () => {
  expect(text('This account is locked.\n')).toMatch('the state of job 7 is unknown');
});

it('the script prints the line after which its output is read', () => {
  expect(statusScript('7', 'gpu').split('\n')).toContain("echo 'otela-status 1'");
});

it('a job id or a partition cannot become shell words', () => {
  expect(() => statusScript('7; rm -rf ~', 'gpu')).toThrow(/not a job's id/);
  expect(statusScript('7', "a'b; x")).toContain(`--partition='a'\\''b; x'`);
});
