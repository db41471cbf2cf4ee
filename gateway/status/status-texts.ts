/** The words of the status page. */
const EN = {
  title: 'Status',
  states: { up: 'served', down: 'not served', unknown: 'unknown' },
  spans: { day: '24 hours', week: '7 days', quarter: '90 days' },
  noChecks: 'no checks',
  checked: 'Last check:',
  never: 'There was no check yet.',
  about: 'A check each minute looks whether a node serves the model. Days without checks are gray.',
};
type Texts = typeof EN;
const DE: Texts = {
  title: 'Status',
  states: { up: 'verfügbar', down: 'nicht verfügbar', unknown: 'unbekannt' },
  spans: { day: '24 Stunden', week: '7 Tage', quarter: '90 Tage' },
  noChecks: 'keine Prüfungen',
  checked: 'Letzte Prüfung:',
  never: 'Es gab noch keine Prüfung.',
  about: 'Eine Prüfung pro Minute stellt fest, ob ein Knoten das Modell anbietet. Tage ohne Prüfungen sind grau.',
};
const FR: Texts = {
  title: 'État',
  states: { up: 'disponible', down: 'indisponible', unknown: 'inconnu' },
  spans: { day: '24 heures', week: '7 jours', quarter: '90 jours' },
  noChecks: 'aucun contrôle',
  checked: 'Dernier contrôle :',
  never: 'Il n’y a pas encore eu de contrôle.',
  about: 'Un contrôle par minute vérifie si un nœud sert le modèle. Les jours sans contrôle sont gris.',
};
const TEXTS: Readonly<Record<string, Texts>> = { en: EN, de: DE, fr: FR };

/** Returns the texts in the first language of `accept-language` that there is. Weights are ignored. */
export function textsFor(acceptLanguage: string | undefined): { language: string; texts: Texts } {
  for (const part of (acceptLanguage ?? '').slice(0, 500).split(',')) {
    const language = part.trim().slice(0, 2).toLowerCase();
    const texts = Object.hasOwn(TEXTS, language) ? TEXTS[language] : undefined;
    if (texts !== undefined) return { language, texts };
  }
  return { language: 'en', texts: EN };
}
