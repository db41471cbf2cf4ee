/**
 * The text of the first element with that name. For S3's answers: no attributes, no nesting, no markup other than these
 * entities.
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
