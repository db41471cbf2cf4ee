import { useEffect, useRef, useState } from 'react';

/** Longer texts are not formulas, and could keep the parser busy. */
const FORMULA_MAX_CHARS = 10_000;

/** Maximum number of expansions of macros, so that a formula that expands without end is refused. */
const EXPANSIONS_MAX = 500;

/**
 * LaTeX as MathML, which browsers render natively. Temml creates elements, not text, so that no sink of Trusted Types
 * is used. It is loaded with the first formula. Until then, and if the source is not a formula, the source is shown.
 */
export function Formula({ tex, display }: { tex: string; display: boolean }) {
  const ref = useRef<HTMLSpanElement>(null);
  const [failed, setFailed] = useState(tex.length > FORMULA_MAX_CHARS);
  useEffect(() => {
    const place = ref.current;
    if (place === null || tex.length > FORMULA_MAX_CHARS) return;
    let isGone = false;
    const show = ({ default: temml }: typeof import('temml')) => {
      if (isGone) return;
      try {
        const options = { displayMode: display, throwOnError: true, trust: false, maxExpand: EXPANSIONS_MAX };
        const tree = temml.__renderToMathMLTree(tex, options);
        withoutStyles(tree);
        place.replaceChildren(tree.toNode());
        setFailed(false);
      } catch {
        setFailed(true);
      }
    };
    import('temml').then(show, () => setFailed(true));
    return () => {
      isGone = true;
    };
  }, [tex, display]);
  const Tag = display ? 'div' : 'span';
  return (
    <Tag className={display ? 'formula' : undefined} tabIndex={display ? 0 : undefined}>
      {failed && <code>{tex}</code>}
      <span ref={ref} hidden={failed} />
    </Tag>
  );
}

interface MathTree {
  attributes?: Record<string, string>;
  children?: MathTree[];
}

/**
 * Removes `style` attributes, which the content-security policy forbids. Temml sets them, for example for bold letters.
 * Styles that Temml sets as properties are allowed, and stay.
 */
function withoutStyles(tree: MathTree): void {
  if (tree.attributes?.style !== undefined) delete tree.attributes.style;
  for (const child of tree.children ?? []) withoutStyles(child);
}
