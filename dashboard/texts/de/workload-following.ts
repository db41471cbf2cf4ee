export const timeline = {
  title: 'Anpassung an die Last',
  about: 'Was otela-plan watch --forecast in den letzten Stunden gezählt, erwartet und geplant hat.',
  plotAbout: 'in den letzten Zeitabschnitten, die otela-plan gemeldet hat',
  demand: (kind: string) => `Anfragen: ${kind}`,
  lines: {
    counted: 'gezählt',
    expected: 'erwartet',
    low: 'jeder zehnte Abschnitt liegt darunter',
    high: 'jeder zehnte liegt darüber',
  },
  replicas: 'Replikate',
  latency: 'Latenz, Millisekunden',
  p50: 'Median',
  p99: '99. Perzentil',
  switches: 'Änderungen',
  noSwitch: 'Kein Replikat wurde geändert.',
  columns: { when: 'Wann', why: 'Warum', what: 'Was' },
};
