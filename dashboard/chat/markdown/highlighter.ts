/**
 * Syntax highlighting: Shiki with its JavaScript engine. A language is loaded when it first occurs. Colors are classes,
 * because inline styles are forbidden.
 */
import { createCssVariablesTheme, createHighlighterCore, type HighlighterCore } from 'shiki/core';
import { createJavaScriptRegexEngine } from 'shiki/engine/javascript';

/** Each grammar is a separate file. */
const LANGUAGES: Readonly<Record<string, () => Promise<{ default: unknown }>>> = {
  bash: () => import('shiki/langs/bash.mjs'),
  c: () => import('shiki/langs/c.mjs'),
  cpp: () => import('shiki/langs/cpp.mjs'),
  css: () => import('shiki/langs/css.mjs'),
  diff: () => import('shiki/langs/diff.mjs'),
  docker: () => import('shiki/langs/docker.mjs'),
  'fortran-free-form': () => import('shiki/langs/fortran-free-form.mjs'),
  go: () => import('shiki/langs/go.mjs'),
  html: () => import('shiki/langs/html.mjs'),
  java: () => import('shiki/langs/java.mjs'),
  javascript: () => import('shiki/langs/javascript.mjs'),
  json: () => import('shiki/langs/json.mjs'),
  julia: () => import('shiki/langs/julia.mjs'),
  latex: () => import('shiki/langs/latex.mjs'),
  makefile: () => import('shiki/langs/make.mjs'),
  markdown: () => import('shiki/langs/markdown.mjs'),
  matlab: () => import('shiki/langs/matlab.mjs'),
  python: () => import('shiki/langs/python.mjs'),
  r: () => import('shiki/langs/r.mjs'),
  rust: () => import('shiki/langs/rust.mjs'),
  sql: () => import('shiki/langs/sql.mjs'),
  toml: () => import('shiki/langs/toml.mjs'),
  tsx: () => import('shiki/langs/tsx.mjs'),
  typescript: () => import('shiki/langs/typescript.mjs'),
  xml: () => import('shiki/langs/xml.mjs'),
  yaml: () => import('shiki/langs/yaml.mjs'),
};

const ALIASES: Readonly<Record<string, string>> = {
  sh: 'bash',
  shell: 'bash',
  zsh: 'bash',
  console: 'bash',
  'c++': 'cpp',
  cc: 'cpp',
  dockerfile: 'docker',
  fortran: 'fortran-free-form',
  f90: 'fortran-free-form',
  js: 'javascript',
  jsx: 'tsx',
  ts: 'typescript',
  jl: 'julia',
  tex: 'latex',
  make: 'makefile',
  md: 'markdown',
  py: 'python',
  python3: 'python',
  rs: 'rust',
  yml: 'yaml',
};

export interface Token {
  text: string;
  /** Class that colors the token, such as `token-keyword`; empty: no color. */
  className: string;
}

/** Longer code stays plain: highlighting it would block the page. */
const CODE_MAX_CHARS = 60_000;

let core: Promise<HighlighterCore> | undefined;

function highlighter(): Promise<HighlighterCore> {
  core ??= createHighlighterCore({
    themes: [createCssVariablesTheme({ name: 'classes', variablePrefix: '--t-', fontStyle: false })],
    langs: [],
    // If JavaScript's regular expressions cannot express a rule of a grammar, its matches stay plain.
    engine: createJavaScriptRegexEngine({ forgiving: true }),
  });
  return core;
}

/** Lines of tokens; undefined: the language is not known. */
export async function highlight(code: string, language: string): Promise<Token[][] | undefined> {
  const name = ALIASES[language.toLowerCase()] ?? language.toLowerCase();
  const load = Object.hasOwn(LANGUAGES, name) ? LANGUAGES[name] : undefined;
  if (load === undefined || code.length > CODE_MAX_CHARS) return undefined;
  const shiki = await highlighter();
  const { default: grammar } = await load();
  await shiki.loadLanguage(grammar as Parameters<HighlighterCore['loadLanguage']>[0]);
  const { tokens } = shiki.codeToTokens(code, { lang: name, theme: 'classes' });
  return tokens.map((line) => line.map(({ content, color }) => ({ text: content, className: classOf(color) })));
}

/** `var(--t-token-keyword)` becomes the class `token-keyword`. */
function classOf(color: string | undefined): string {
  return /--t-(token-[a-z-]+)/.exec(color ?? '')?.[1] ?? '';
}
