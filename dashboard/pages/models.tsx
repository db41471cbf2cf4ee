import { useState } from 'preact/hooks';
import type { Live } from '../api/live.ts';
import type { ModelLoad, Node } from '../api/schemas.ts';
import { type CatalogueModel, catalogue } from '../parts/catalogue.ts';
import { count, gpus, plural, timeLeft } from '../parts/format.ts';
import { Copy, Dialog, Empty, Loading, Tag, Wide } from '../parts/ui.tsx';
import { useMinute } from '../parts/use-minute.ts';

export function ModelsPage({ live }: { live: Live }) {
  const models = catalogue(live.nodes.values());
  const [shown, setShown] = useState<string>();
  const now = useMinute();
  return (
    <>
      <h1>Models</h1>
      {models.length === 0 && live.connection === 'connecting' && <Loading />}
      {models.length === 0 && live.connection === 'live' && (
        <Empty>
          Nobody serves a model at this moment. A provider adds one by wrapping a serve command with otela-agent.
        </Empty>
      )}
      <ul class="cards">
        {models.map((model) => (
          <Card
            key={model.id}
            model={model}
            load={live.loads.get(model.id)}
            now={now}
            code={() => setShown(model.id)}
          />
        ))}
      </ul>
      {shown !== undefined && <Code model={shown} close={() => setShown(undefined)} />}
    </>
  );
}

interface CardProps {
  model: CatalogueModel;
  /** Undefined: not known. */
  load: ModelLoad | undefined;
  now: number;
  code: () => void;
}

function Card({ model, load, now, code }: CardProps) {
  const { id, serving, loading, silent, contextLength, quantizations, nodes } = model;
  return (
    <li class="card">
      <h2>{id}</h2>
      <p class="row">
        {serving > 0 ? (
          <Tag kind="good">{plural(serving, 'replica')} serving</Tag>
        ) : (
          <Tag kind="bad">not served now</Tag>
        )}
        {loading > 0 && <Tag kind="wait">{count(loading)} loading</Tag>}
        {silent > 0 && <Tag kind="bad">{count(silent)} silent</Tag>}
      </p>
      <dl>
        <dt>Context</dt>
        <dd>{contextLength === undefined ? '–' : `${count(contextLength)} tokens`}</dd>
        <dt>Weights</dt>
        <dd>{quantizations.join(', ') || '–'}</dd>
        <dt>Load</dt>
        <dd class="now">
          {load === undefined ? UNKNOWN : `${count(load.running)} running, ${count(load.waiting)} waiting`}
        </dd>
        <dt>Tokens/s now</dt>
        <dd class="now">{load?.tokens_per_second == null ? UNKNOWN : count(load.tokens_per_second)}</dd>
      </dl>
      <Wide label={`Replicas of ${id}`}>
        <table>
          <thead>
            <tr>
              <th>Provider</th>
              <th>Site</th>
              <th>GPUs</th>
              <th>Time left</th>
            </tr>
          </thead>
          <tbody>
            {nodes.slice(0, 8).map((node) => (
              <Replica key={node.session} node={node} now={now} />
            ))}
          </tbody>
        </table>
      </Wide>
      {nodes.length > 8 && <p class="quiet">and {plural(nodes.length - 8, 'more', 'more')}</p>}
      <p class="row">
        <a class="button" href={`#/chat?model=${encodeURIComponent(id)}`}>
          Chat
        </a>
        <button type="button" onClick={code}>
          Code
        </button>
      </p>
    </li>
  );
}

/** Engines that do nothing say nothing. */
const UNKNOWN = (
  <span class="quiet" title="Nothing was heard of its engines within 5 seconds, or they do not tell">
    unknown
  </span>
);

function Replica({ node, now }: { node: Node; now: number }) {
  return (
    <tr>
      <td>{node.provider}</td>
      <td>
        {node.cluster}
        {node.region === undefined ? '' : `, ${node.region}`}
      </td>
      <td>{gpus(node.hardware.gpus)}</td>
      <td>{timeLeft(node.job?.ends_at, now)}</td>
    </tr>
  );
}

const LANGUAGES = ['curl', 'Python', 'JavaScript'] as const;

function snippet(language: (typeof LANGUAGES)[number], model: string, url: string): string {
  // Names are providers' words, and this is to be pasted into a shell.
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] }).replaceAll("'", `'\\''`);
  switch (language) {
    case 'curl':
      return `curl ${url}/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" \\\n  -H 'Content-Type: application/json' -d '${body}'`;
    case 'Python':
      return `from openai import OpenAI\nclient = OpenAI(base_url=${JSON.stringify(url)})\nanswer = client.chat.completions.create(model=${JSON.stringify(model)}, messages=[{"role": "user", "content": "Hello"}])\nprint(answer.choices[0].message.content)`;
    case 'JavaScript':
      return `import OpenAI from 'openai';\nconst client = new OpenAI({ baseURL: ${JSON.stringify(url)} });\nconst answer = await client.chat.completions.create({ model: ${JSON.stringify(model)}, messages: [{ role: 'user', content: 'Hello' }] });\nconsole.log(answer.choices[0].message.content);`;
  }
}

function Code({ model, close }: { model: string; close: () => void }) {
  const [language, setLanguage] = useState<(typeof LANGUAGES)[number]>('curl');
  const text = snippet(language, model, `${location.origin}/v1`);
  return (
    <Dialog title={`Use ${model}`} close={close}>
      <fieldset class="row">
        <legend>Language</legend>
        {LANGUAGES.map((one) => (
          <button key={one} type="button" aria-pressed={one === language} onClick={() => setLanguage(one)}>
            {one}
          </button>
        ))}
      </fieldset>
      <pre tabIndex={0}>{text}</pre>
      <p class="quiet">Your key goes into OPENAI_API_KEY.</p>
      <form method="dialog" class="row">
        <Copy text={text} />
        <button type="submit">Close</button>
      </form>
    </Dialog>
  );
}
