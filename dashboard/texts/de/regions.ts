export const regions = {
  about: 'Die Regionen der Knoten, ihre Strompreise und ihre Anteile an den Anfragen.',
  none: 'Kein Knoten bietet ein Modell an, und es gibt keine Preise.',
  unnamed: 'ohne Region',
  regions: 'Regionen',
  columns: {
    region: 'Region',
    nodes: 'Knoten',
    price: 'Preis',
    trip: 'Umlaufzeit',
    running: 'In Engines',
    waiting: 'In Warteschlangen',
  },
  nodes: (all: number, suspected: number) => (suspected === 0 ? String(all) : `${all}, ${suspected} nicht erreichbar`),
  price: (usd: number) => `${usd.toFixed(3)} USD/kWh`,
  priceStates: { current: '', negative: 'negativ', stale: 'veraltet', missing: 'unbekannt' },
  matrix: 'Anfragen nach Modell und Region',
  matrixAbout:
    'Der Anteil im Plan, der Anteil der Antworten, seit diese Seite geöffnet ist, und die Knoten, die das Modell zurzeit anbieten.',
  model: 'Modell',
  planned: (percent: number) => `Plan ${percent} %`,
  went: (percent: number) => `tatsächlich ${percent} %`,
  serving: (nodes: number) => `${nodes} verfügbar`,
  warm: (nodes: number) => `${nodes} bereithalten`,
  plan: 'Der Plan',
  noPlan:
    'Es gibt keinen gültigen Plan, deshalb wählen Routing-Strategien die Region. otela-plan regions erstellt einen Plan.',
  holds: (planner: string, until: string) => `Erstellt von ${planner}, gültig bis ${until}.`,
  over: (planner: string, since: string) =>
    `Der Plan von ${planner} ist um ${since} abgelaufen, deshalb wählen Routing-Strategien die Region.`,
};
