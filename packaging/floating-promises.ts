/**
 * Promises that are dropped: if one rejects, its error is an unhandled rejection, which ends a program. A promise is
 * awaited, returned, kept, handed to a function or given a handler (`.catch(f)`, `.then(f, g)`). For work beside the
 * caller there are `inBackground` and `neverRejects` (shared/timing/in-background.ts). Also forbidden is a function
 * that returns a promise although the caller expects none, e.g. `setInterval(async () => …)`.
 * `node packaging/floating-promises.ts` prints each such place and fails.
 */
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Expression, type Node, type SourceFile, SyntaxKind } from 'typescript/unstable/ast';
import {
  isArrowFunction,
  isAwaitExpression,
  isBinaryExpression,
  isCallExpression,
  isExpressionStatement,
  isFunctionExpression,
  isParenthesizedExpression,
  isPropertyAccessExpression,
  isVoidExpression,
} from 'typescript/unstable/ast/is';
import { API, type Checker, type Project, SignatureKind, type Type, TypeFlags } from 'typescript/unstable/sync';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Patterns of source files, for each tsc configuration that compiles them. */
const SOURCES: Record<string, string[]> = {
  'tsconfig.node.json': [
    ...['agent', 'clients', 'scheduler', 'factory', 'up', 'gateway/cli', 'gateway/cloudflare', 'gateway/hosts/node'],
    ...['packaging', 'deploy', 'bench', 'test', 'research', 'examples'],
  ]
    .map((folder) => `${folder}/**/*.ts`)
    .concat('start.ts'),
  'tsconfig.worker.json': ['gateway/**/*.ts', 'shared/**/*.ts', 'test/gateway/**/*.ts'],
  'dashboard/tsconfig.json': ['**/*.ts', '**/*.tsx'],
};

/** Operators that may have the value of their right side. */
const CHOICES: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.AmpersandAmpersandToken,
  SyntaxKind.BarBarToken,
  SyntaxKind.QuestionQuestionToken,
  SyntaxKind.CommaToken,
]);

interface Place {
  file: SourceFile;
  node: Expression;
}

function inner(node: Expression): Expression {
  return isParenthesizedExpression(node) ? inner(node.expression) : node;
}

/** True for `p.catch(f)` and `p.then(f, g)`, also if `.finally(f)` follows. */
function isHandled(node: Expression): boolean {
  if (!isCallExpression(node) || !isPropertyAccessExpression(node.expression)) return false;
  const { expression, name } = node.expression;
  if (name.text === 'finally') return isHandled(inner(expression));
  return node.arguments.length === (name.text === 'catch' ? 1 : name.text === 'then' ? 2 : Number.NaN);
}

/** False if the value is awaited or assigned. */
function mayDrop(value: Expression): boolean {
  if (isBinaryExpression(value)) return CHOICES.has(value.operatorToken.kind);
  return !isAwaitExpression(value) && !isVoidExpression(value);
}

function isAsync(node: Node): boolean {
  return 'modifiers' in node && (node.modifiers as Node[] | undefined)?.some(isAsyncKeyword) === true;
}

const isAsyncKeyword = ({ kind }: Node) => kind === SyntaxKind.AsyncKeyword;

/** Finds values that may be dropped promises, and functions that may return a promise and are handed to a call. */
function placesIn(file: SourceFile): { dropped: Place[]; functions: Place[] } {
  const dropped: Place[] = [];
  const functions: Place[] = [];
  const visit = (node: Node): void => {
    if (isVoidExpression(node) || isExpressionStatement(node)) {
      const value = inner(node.expression);
      if (mayDrop(value) && !isHandled(value)) dropped.push({ file, node: value });
    } else if (isArrowFunction(node) || isFunctionExpression(node)) {
      const mayPromise =
        isAsync(node) || (isArrowFunction(node) && isCallExpression(node.body) && !isHandled(node.body));
      if (mayPromise && node.parent !== undefined && isCallExpression(node.parent)) functions.push({ file, node });
    }
    node.forEachChild(visit);
  };
  file.forEachChild(visit);
  return { dropped, functions };
}

function isPromise(type: Type | undefined): boolean {
  if (type === undefined) return false;
  if (type.isUnionType()) return type.getTypes().some(isPromise);
  const name = type.getSymbol()?.name;
  return name === 'Promise' || name === 'PromiseLike';
}

/** True if a function of this type returns nothing that its caller could await. */
function returnsVoid(checker: Checker, type: Type | undefined): boolean {
  const signatures = type === undefined ? [] : checker.getSignaturesOfType(type, SignatureKind.Call);
  const returned = signatures.map((signature) => checker.getReturnTypeOfSignature(signature));
  return returned.length > 0 && returned.every((one) => one !== undefined && (one.flags & TypeFlags.Void) !== 0);
}

function returnsPromise(checker: Checker, type: Type | undefined): boolean {
  const [signature] = type === undefined ? [] : checker.getSignaturesOfType(type, SignatureKind.Call);
  return signature !== undefined && isPromise(checker.getReturnTypeOfSignature(signature));
}

function told(root: string, { file, node }: Place, what: string): string {
  const lines = file.text.slice(0, node.end).split('\n');
  const [text = ''] = file.text.slice(node.pos, node.end).trim().split('\n');
  return `${relative(root, file.fileName)}:${lines.length} ${what}: ${text.slice(0, 80)}`;
}

function promisesOf({ program, checker }: Project, root: string, seen: Set<string>): string[] {
  const names = program
    .getSourceFileNames()
    .filter((name) => !/(?:^|\/)node_modules\//.test(relative(root, name)) && !seen.has(name));
  for (const name of names) seen.add(name);
  const places = names.map((name) => program.getSourceFile(name)).flatMap((file) => (file ? [placesIn(file)] : []));
  // Asks for the types of all nodes in one request, because each request is a round trip to the compiler.
  const dropped = places.flatMap((one) => one.dropped);
  const types = checker.getTypeAtLocation(dropped.map(({ node }) => node));
  const functions = places.flatMap((one) => one.functions);
  const own = checker.getTypeAtLocation(functions.map(({ node }) => node));
  return [
    ...dropped.filter((_, i) => isPromise(types[i])).map((place) => told(root, place, 'a promise is dropped')),
    ...functions
      .filter((_, i) => returnsPromise(checker, own[i]))
      .filter(({ node }) => returnsVoid(checker, checker.getContextualType(node)))
      .map((place) => told(root, place, 'its caller drops the promise that this function returns')),
  ];
}

/**
 * Finds each dropped promise in these sources.
 *
 * @param sources patterns relative to the configuration's folder, by configuration
 */
export function droppedPromises(root: string, sources: Readonly<Record<string, readonly string[]>>): string[] {
  const narrowed = Object.entries(sources).map(([path, include]) => {
    const [name = '', ...folders] = path.split('/').reverse();
    const config = join(root, ...folders.reverse(), `tsconfig.promises.${name}`);
    return [config, JSON.stringify({ extends: `./${name}`, include })] as const;
  });
  const files = new Map(narrowed);
  const api = new API({
    cwd: root,
    fs: { readFile: (name) => files.get(name), fileExists: (name) => (files.has(name) ? true : undefined) },
  });
  try {
    const snapshot = api.updateSnapshot({ openProjects: [...files.keys()] });
    const seen = new Set<string>();
    return snapshot.getProjects().flatMap((project) => promisesOf(project, root, seen));
  } finally {
    api.close();
  }
}

function main(): void {
  for (const one of droppedPromises(ROOT, SOURCES)) {
    console.error(one);
    process.exitCode = 1;
  }
}

if (import.meta.main) main();
