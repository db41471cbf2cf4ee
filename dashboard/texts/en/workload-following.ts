export const timeline = {
  title: 'Following the workload',
  about: 'What otela-plan watch --forecast counted, expected and planned in the last hours.',
  plotAbout: 'in the last slots that otela-plan reported',
  demand: (kind: string) => `Requests: ${kind}`,
  lines: { counted: 'counted', expected: 'expected', low: 'one slot in ten is below', high: 'one in ten is above' },
  replicas: 'Replicas',
  latency: 'Latency, milliseconds',
  p50: 'median',
  p99: '99th percentile',
  switches: 'Changes',
  noSwitch: 'No replica was changed.',
  columns: { when: 'When', why: 'Why', what: 'What' },
};
