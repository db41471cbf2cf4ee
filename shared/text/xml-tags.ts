/**
 * The text of the first element with this name. Sufficient for the answers of S3, which have no attributes, no nesting,
 * and only the entities below.
 */
export function xmlTag(xml: string, name: string): string | undefined {
  return xmlTags(xml, name)[0];
}

export function xmlTags(xml: string, name: string): string[] {
  const found = xml.matchAll(new RegExp(`<${name}>([^<]*)</${name}>`, 'g'));
  return [...found].map(([, text = '']) => unescaped(text));
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", '#34': '"' };

function unescaped(text: string): string {
  return text.replace(/&(#?\w+);/g, (all, name: string) => ENTITIES[name] ?? all);
}
