import { ApiError } from '../openai/api-errors.ts';
import { NO_REQUIREMENTS, type NodeRequirements } from '../routing/candidates.ts';
import { parseRequirements, type Requirement, RequirementError } from '../routing/requirements.ts';

type Word = 'require' | 'prefer';

const NOTHING: [string, string][] = [];

/**
 * A request's requirements for nodes, from its headers and its body's `metadata`. If both are given, a node must meet
 * both.
 * @throws ApiError 400
 */
export function readRequirements(
  header: (name: string) => string | null | undefined,
  metadata: Readonly<Record<string, string>>,
): NodeRequirements {
  const said = (word: Word): [string, string][] => {
    const [asHeader, asMember] = [header(`x-otela-${word}`), metadata[`otela_${word}`]];
    if (!asHeader && !asMember) return NOTHING;
    const found: [string, string | null | undefined][] = [
      [`x-otela-${word}`, asHeader],
      [`metadata.otela_${word}`, asMember],
    ];
    return found.flatMap(([param, text]): [string, string][] => (text ? [[param, text]] : []));
  };
  const [require, prefer] = [said('require'), said('prefer')];
  if (require.length === 0 && prefer.length === 0) return NO_REQUIREMENTS;
  const words = [require, prefer].map((list) => list.map(([, text]) => text).join(';')).join(' | ');
  return { require: require.flatMap(read), prefer: prefer.flatMap(read), words };
}

function read([param, text]: [string, string]): Requirement[] {
  try {
    return parseRequirements(text);
  } catch (error) {
    if (error instanceof RequirementError) throw new ApiError(error.code, `${param}: ${error.message}.`, { param });
    throw error;
  }
}
