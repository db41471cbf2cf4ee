export const regions = {
  about: 'Les régions des nœuds, leurs prix de l’électricité et leurs parts des requêtes.',
  none: 'Aucun nœud ne propose de modèle, et il n’y a pas de prix.',
  unnamed: 'sans région',
  regions: 'Régions',
  columns: {
    region: 'Région',
    nodes: 'Nœuds',
    price: 'Prix',
    trip: 'Aller-retour',
    running: 'Dans les moteurs',
    waiting: 'Dans les files',
  },
  nodes: (all: number, suspected: number) => (suspected === 0 ? String(all) : `${all}, dont ${suspected} injoignables`),
  price: (usd: number) => `${usd.toFixed(3)} USD/kWh`,
  priceStates: { current: '', negative: 'négatif', stale: 'ancien', missing: 'inconnu' },
  matrix: 'Requêtes par modèle et région',
  matrixAbout:
    'La part prévue par le plan, la part des réponses depuis l’ouverture de cette page, et les nœuds en service.',
  model: 'Modèle',
  planned: (percent: number) => `plan ${percent} %`,
  went: (percent: number) => `réel ${percent} %`,
  serving: (nodes: number) => `${nodes} en service`,
  warm: (nodes: number) => `en garder ${nodes} prêts`,
  plan: 'Le plan',
  noPlan:
    'Il n’y a pas de plan valable, donc les stratégies de routage choisissent la région. otela-plan regions crée un plan.',
  holds: (planner: string, until: string) => `Créé par ${planner}, valable jusqu’à ${until}.`,
  over: (planner: string, since: string) =>
    `Le plan de ${planner} a expiré à ${since}, donc les stratégies de routage choisissent la région.`,
};
