import { useEffect, useRef, useState } from 'react';
import { speak } from '../../api/voice.ts';
import { t } from '../../texts/index.ts';
import { IconButton } from '../../ui/button.tsx';
import { messageOf } from '../../ui/feedback.tsx';
import { Square, Volume2 } from '../../ui/icons.ts';
import { spokenPieces, spokenText } from './spoken-text.ts';
import { useVoice, type Voice } from './voice-context.ts';

const texts = t.chat.voice;

/** Reads an answer aloud. */
export function SpeakButton({ text }: { text: string }) {
  const voice = useVoice();
  const [speaking, setSpeaking] = useState<AbortController>();
  const [error, setError] = useState<string>();
  const running = useRef<AbortController>(undefined);
  running.current = speaking;
  useEffect(() => () => running.current?.abort(), []);
  if (voice.speaks === undefined) return null;
  const start = async () => {
    const controller = new AbortController();
    setSpeaking(controller);
    setError(undefined);
    try {
      await readAloud(text, voice, controller.signal);
    } catch (cause) {
      if (!controller.signal.aborted) setError(messageOf(cause));
    }
    setSpeaking((now) => (now === controller ? undefined : now));
  };
  if (speaking !== undefined)
    return (
      <IconButton
        label={texts.stopSpeaking}
        onClick={() => {
          speaking.abort();
          setSpeaking(undefined);
        }}
      >
        <Square fill="currentColor" />
      </IconButton>
    );
  return (
    <>
      <IconButton label={texts.speak} onClick={start}>
        <Volume2 />
      </IconButton>
      {error !== undefined && (
        <span role="alert" className="text-bad text-xs">
          {error}
        </span>
      )}
    </>
  );
}

/** Speaks piece after piece. The next one is fetched while one is heard. */
async function readAloud(text: string, { speaks = '', trusted }: Voice, signal: AbortSignal): Promise<void> {
  const pieces = spokenPieces(spokenText(text));
  const fetched = (piece: string | undefined) =>
    piece === undefined ? undefined : speak(piece, { model: speaks, trusted, signal });
  // Decoded by Web Audio: an <audio> element would need an address, which the page's content-security policy refuses.
  const output = new AudioContext();
  try {
    let next = fetched(pieces[0]);
    for (let n = 0; next !== undefined && !signal.aborted; n++) {
      const sound = await output.decodeAudioData(await next).catch((cause: unknown) => {
        throw cause instanceof DOMException ? new Error(texts.unreadable, { cause }) : cause;
      });
      signal.throwIfAborted();
      next = fetched(pieces[n + 1]);
      // Its failure is reported when it is awaited.
      next?.catch(() => undefined);
      await heard(output, sound, signal);
    }
  } finally {
    await output.close();
  }
}

function heard(output: AudioContext, sound: AudioBuffer, signal: AbortSignal): Promise<void> {
  const source = new AudioBufferSourceNode(output, { buffer: sound });
  source.connect(output.destination);
  return new Promise((resolve) => {
    source.onended = () => resolve();
    signal.addEventListener('abort', () => source.stop(), { once: true });
    source.start();
  });
}
