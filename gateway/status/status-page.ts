/** The status page as HTML, without scripts. */
import type { StatusReport } from './status-object.ts';
import type { textsFor } from './status-texts.ts';

const STYLE = `:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{font-size:1.1rem;margin:1.5rem 0 .2rem;overflow-wrap:anywhere}
p{margin:.2rem 0}
svg{width:100%;height:2rem;display:block}
.banner{border-left:.3rem solid #3b82f6;padding:.5rem 1rem;margin:1rem 0}
.warning{border-color:#d97706}
.up{fill:#16a34a}.some{fill:#d97706}.down{fill:#dc2626}.none{fill:#9ca3af}`;

/** Allows only the style sheet above, by its hash. */
export async function statusPolicy(): Promise<string> {
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(STYLE));
  const style = btoa(String.fromCharCode(...new Uint8Array(hash)));
  return `default-src 'none'; style-src 'sha256-${style}'; frame-ancestors *; base-uri 'none'; form-action 'none'`;
}

export function statusPage(report: StatusReport, { language, texts }: ReturnType<typeof textsFor>): string {
  const { banner, checked_at: checked, models } = report;
  const shown = banner && `<p role="status" class="banner ${banner.level}">${escaped(banner.text)}</p>`;
  const sections = models.map((model) => {
    const spans = Object.entries(texts.spans).map(([name, label]) => {
      const value = model[name as keyof typeof texts.spans];
      return `${label}: ${value === null ? texts.noChecks : percent(value)}`;
    });
    const bars = model.days.map(({ day, availability }, n) => {
      const label = `${day}: ${availability === null ? texts.noChecks : percent(availability)}`;
      return `<rect class="${colorOf(availability)}" x="${n * 10}" width="8" height="30"><title>${label}</title></rect>`;
    });
    return `<section><h2>${escaped(model.id)}: ${texts.states[model.state]}</h2><p>${spans.join(' · ')}</p>
<svg viewBox="0 0 ${model.days.length * 10} 30" preserveAspectRatio="none" role="img" aria-label="${spans.join(', ')}">${bars.join('')}</svg></section>`;
  });
  const when = checked === null ? texts.never : `${texts.checked} <time>${checked}</time>`;
  return `<!doctype html><html lang="${language}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="refresh" content="60">
<title>${texts.title}</title><style>${STYLE}</style></head><body><main><h1>${texts.title}</h1>
${shown ?? ''}${sections.join('\n')}<footer><p>${when}</p><p>${texts.about}</p></footer></main></body></html>`;
}

function colorOf(availability: number | null): string {
  if (availability === null) return 'none';
  if (availability === 1) return 'up';
  return availability >= 0.9 ? 'some' : 'down';
}

/** Rounded down, as the shares are. */
function percent(share: number): string {
  return `${(share * 100).toFixed(2)} %`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
