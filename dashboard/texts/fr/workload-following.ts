export const timeline = {
  title: 'Suivi de la charge',
  about: 'Ce que otela-plan watch --forecast a compté, attendu et planifié au cours des dernières heures.',
  plotAbout: 'dans les derniers intervalles signalés par otela-plan',
  demand: (kind: string) => `Requêtes : ${kind}`,
  lines: {
    counted: 'comptées',
    expected: 'attendues',
    low: 'un intervalle sur dix est en dessous',
    high: 'un sur dix est au-dessus',
  },
  replicas: 'Réplicas',
  latency: 'Latence, millisecondes',
  p50: 'médiane',
  p99: '99e centile',
  switches: 'Changements',
  noSwitch: 'Aucun réplica n’a été modifié.',
  columns: { when: 'Quand', why: 'Pourquoi', what: 'Quoi' },
};
