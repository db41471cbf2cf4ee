import { milliseconds } from '../parts/format.ts';
import { Markdown } from '../parts/markdown.tsx';
import { Copy } from '../ui/copy.tsx';
import type { Turn } from './conversation.ts';

interface TurnProps {
  turn: Turn;
  /** Undefined while nothing may change. */
  edit: (() => void) | undefined;
  again: (() => void) | undefined;
}

export function TurnView({ turn, edit, again }: TurnProps) {
  const { role, text, images, reasoning, error } = turn;
  return (
    <li className={`turn ${role}`}>
      <span className="speaker">{role === 'user' ? 'You' : 'Model'}</span>
      {images.map((url) => (
        <img key={url} src={url} alt="You sent" className="thumb" />
      ))}
      {reasoning !== '' && (
        <details className="reasoning">
          <summary>Reasoning</summary>
          <Markdown text={reasoning} />
        </details>
      )}
      {role === 'user' ? <p className="said">{text}</p> : <Markdown text={text} />}
      {error !== undefined && (
        <p role="alert" className="failure">
          {error}
        </p>
      )}
      <p className="row quiet">
        {turn.told && <Told told={turn.told} />}
        {role === 'user' && edit && (
          <button type="button" className="small" onClick={edit}>
            Edit
          </button>
        )}
        {role === 'assistant' && text !== '' && <Copy text={text} />}
        {role === 'assistant' && again && (
          <button type="button" className="small" onClick={again}>
            Regenerate
          </button>
        )}
      </p>
    </li>
  );
}

function Told({ told }: { told: NonNullable<Turn['told']> }) {
  const { node, provider, firstTokenMs, tokensPerSecond } = told;
  return (
    <span className="told">
      {provider}, node <code>{node.slice(0, 8)}</code>
      {firstTokenMs !== undefined && `, first token ${milliseconds(firstTokenMs)}`}
      {tokensPerSecond !== undefined && `, ${tokensPerSecond.toFixed(1)} tokens/s`}
    </span>
  );
}
