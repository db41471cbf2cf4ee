import { useEffect, useRef, useState } from 'react';
import { chat } from '../api/chat.ts';
import { cutAt, emptyAnswer, messagesOf, samplingOf, type Turn } from './conversation.ts';
import type { Settings } from './settings.tsx';

export interface Conversation {
  turns: readonly Turn[];
  /** An answer is on its way. */
  busy: boolean;
  /** Begins the answer to these turns, which end with the user's. */
  ask(turns: Turn[]): void;
  /** Takes back the turn at `index` and all behind it. */
  cut(index: number): void;
  /** Ends the answer that is on its way; what came stays. */
  stop(): void;
  clear(): void;
}

/** What was said with one model and what is being answered, in this page alone; a page that goes ends the answer. */
export function useConversation(model: string, settings: Settings): Conversation {
  const [turns, setTurns] = useState<Turn[]>([]);
  const [busy, setBusy] = useState(false);
  const running = useRef<AbortController>(undefined);
  const stop = () => running.current?.abort();
  useEffect(() => () => running.current?.abort(), []);

  const answer = async (asked: Turn[]) => {
    const controller = new AbortController();
    running.current = controller;
    setBusy(true);
    const reply = emptyAnswer();
    /** Of a conversation that was left for a new one, nothing is shown any more. */
    const isShown = () => running.current === controller;
    const show = () => {
      if (isShown()) setTurns([...asked, { ...reply }]);
    };
    show();
    try {
      const request = { model, messages: messagesOf(asked, settings.system), ...samplingOf(settings) };
      const events = {
        onText: (text: string) => {
          reply.text += text;
          show();
        },
        onReasoning: (text: string) => {
          reply.reasoning += text;
          show();
        },
        onTold: (told: Turn['told']) => {
          if (told !== undefined) reply.told = told;
          show();
        },
      };
      await chat(request, settings.trusted, events, controller.signal);
    } catch (error) {
      if (!controller.signal.aborted) reply.error = error instanceof Error ? error.message : String(error);
      show();
    } finally {
      if (isShown()) setBusy(false);
    }
  };

  return {
    turns,
    busy,
    ask: (asked) => void answer(asked),
    cut: (index) => setTurns(cutAt(turns, index)),
    stop,
    clear: () => {
      stop();
      running.current = undefined;
      setBusy(false);
      setTurns([]);
    },
  };
}
