import { useEffect, useRef, useState } from 'react';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { transcribe } from '../../api/voice.ts';
import { t } from '../../texts/index.ts';
import { IconButton } from '../../ui/button.tsx';
import { LoaderCircle, Mic, Square } from '../../ui/icons.ts';
import { useVoice } from './voice-context.ts';

const texts = t.chat.voice;

/** A recording ends after this time, so that a forgotten one does not fill the memory. */
const RECORDING_MAX_MS = 5 * 60_000;
/** Enough for speech: five minutes are 1.2 MB. */
const BITS_PER_SECOND = 32_000;
const TYPES = ['audio/webm;codecs=opus', 'audio/mp4'];

/** Browsers give the microphone only to pages on TLS and on localhost. */
const HAS_MICROPHONE = typeof MediaRecorder !== 'undefined' && navigator.mediaDevices !== undefined;

interface DictateButtonProps {
  onText: (text: string) => void;
  onError: (error: unknown) => void;
}

/** Records speech and writes its words into the message. */
export function DictateButton({ onText, onError }: DictateButtonProps) {
  const { hears, trusted } = useVoice();
  const [state, setState] = useState<'idle' | 'asking' | 'recording' | 'reading'>('idle');
  const recorder = useRef<MediaRecorder>(undefined);
  const reading = useRef(new AbortController());
  const gone = useRef(false);
  useEffect(() => {
    gone.current = false;
    return () => {
      gone.current = true;
      reading.current.abort();
      release(recorder.current);
    };
  }, []);
  if (hears === undefined || !HAS_MICROPHONE) return null;
  const read = async (sound: Blob) => {
    setState('reading');
    reading.current = new AbortController();
    const { signal } = reading.current;
    try {
      onText(await transcribe(sound, { model: hears, trusted, signal }));
    } catch (error) {
      if (!signal.aborted) onError(error);
    }
    if (!signal.aborted) setState('idle');
  };
  const start = async () => {
    setState('asking');
    try {
      // The user may leave the page before allowing the microphone.
      const made = await record((sound) => neverRejects(read(sound)));
      if (gone.current) return release(made);
      recorder.current = made;
      setState('recording');
    } catch (cause) {
      if (gone.current) return;
      setState('idle');
      onError(new Error(texts.noMicrophone, { cause }));
    }
  };
  if (state === 'reading')
    return (
      <IconButton label={texts.reading} disabled>
        <LoaderCircle className="animate-spin" />
      </IconButton>
    );
  if (state === 'recording')
    return (
      <IconButton label={texts.stopRecording} onClick={() => recorder.current?.stop()} className="text-bad!">
        <Square fill="currentColor" />
      </IconButton>
    );
  return (
    <IconButton label={texts.record} disabled={state === 'asking'} onClick={start}>
      <Mic />
    </IconButton>
  );
}

/** Begins a recording. @param done called with the sound when it was stopped. @throws DOMException without permission */
async function record(done: (sound: Blob) => void): Promise<MediaRecorder> {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
  const recorder = new MediaRecorder(stream, {
    audioBitsPerSecond: BITS_PER_SECOND,
    ...(mimeType !== undefined && { mimeType }),
  });
  const chunks: Blob[] = [];
  recorder.ondataavailable = ({ data }) => chunks.push(data);
  const limit = setTimeout(() => recorder.stop(), RECORDING_MAX_MS);
  recorder.onstop = () => {
    clearTimeout(limit);
    for (const track of stream.getTracks()) track.stop();
    done(new Blob(chunks, { type: recorder.mimeType }));
  };
  recorder.start();
  return recorder;
}

/** Gives the microphone back without using the sound. */
function release(recorder: MediaRecorder | undefined): void {
  if (recorder === undefined || recorder.state === 'inactive') return;
  recorder.onstop = null;
  recorder.stop();
  for (const track of recorder.stream.getTracks()) track.stop();
}
