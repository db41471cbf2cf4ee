import type { ReactNode } from 'react';
import { milliseconds } from '../parts/format.ts';
import { t } from '../texts/index.ts';
import { Brain, ChevronRight, Wrench } from '../ui/icons.ts';
import { Code } from '../ui/page.tsx';
import type { ToolCall } from './conversation.ts';

function Folded({ icon, title, children }: { icon: ReactNode; title: ReactNode; children: ReactNode }) {
  return (
    <details className="group/fold rounded-md border border-line bg-surface">
      <summary className="flex list-none items-center gap-2 px-3 py-1.5 text-muted text-sm [&::-webkit-details-marker]:hidden">
        {icon}
        <span className="min-w-0 flex-1">{title}</span>
        <ChevronRight className="size-4 shrink-0 transition-transform group-open/fold:rotate-90" aria-hidden />
      </summary>
      <div className="border-line border-t px-3 py-2.5">{children}</div>
    </details>
  );
}

interface ReasoningProps {
  text: string;
  ms: number | undefined;
  /** True while the model still reasons. */
  live: boolean;
}

/** A model's reasoning before its answer: collapsed, and as plain text. */
export function Reasoning({ text, ms, live }: ReasoningProps) {
  const title = live ? t.chat.thinking : ms === undefined ? t.chat.reasoning : t.chat.reasoningFor(milliseconds(ms));
  return (
    <Folded
      icon={<Brain className="size-4 shrink-0" aria-hidden />}
      title={<span className={live ? 'breathe' : undefined}>{title}</span>}
    >
      <p className="max-h-96 overflow-y-auto whitespace-pre-wrap text-muted text-sm [overflow-wrap:anywhere]">{text}</p>
    </Folded>
  );
}

/** Functions that the model calls. This page runs none. */
export function ToolCalls({ calls }: { calls: readonly ToolCall[] }) {
  return (
    <ul className="flex flex-col gap-2">
      {calls.map((call, n) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: calls are only appended
        <li key={n}>
          <Folded icon={<Wrench className="size-4 shrink-0" aria-hidden />} title={t.chat.tool(call.name)}>
            <Code label={t.chat.tool(call.name)}>{formatted(call.arguments)}</Code>
          </Folded>
        </li>
      ))}
    </ul>
  );
}

function formatted(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
