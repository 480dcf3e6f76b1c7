// What waits for a person: the question, and the buttons that answer it.

import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { type Problem, mayAct, post, runPath } from "./api.ts";
import { Arguments, Because, CallVerdicts } from "./call_verdicts.tsx";
import { plural } from "./format.ts";
import { type AskedQuestion, type CallVerdict, type Run, openQuestion, pendingCalls, planned } from "./run_state.ts";
import { Icon } from "./states.tsx";

export const VERDICTS: Record<string, string> = {
  approve: "approved", reject: "rejected", edit: "edited", done: "done", again: "again", fail: "given up", answer: "answered",
};

export function NeedsYou({ run, edit }: { run: Run; edit: () => void }): JSX.Element | null {
  const question = openQuestion(run);
  const [beaten, setBeaten] = useState("");
  if (!question) return beaten ? <p class="ny-beaten" role="status">{beaten}</p> : null;
  return <OpenQuestion key={question.number} run={run} question={question} edit={edit} setBeaten={setBeaten} />;
}

type Props = { run: Run; question: AskedQuestion; edit: () => void; setBeaten: (text: string) => void };

function OpenQuestion({ run, question, edit, setBeaten }: Props): JSX.Element {
  const action = useAction();
  const [isRejecting, setRejecting] = useState(false);
  const [text, setText] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  // keys are shortcuts unless a field has the focus: the reason for a rejection must not leave the run
  useEffect(() => { if (isRejecting) box.current?.focus(); }, [isRejecting]);
  const answer = (verdict: string, words = text): Promise<void> =>
    action.run(async () => {
      const said = verdict === "answer" ? { result: resultOf(question, words) } : { feedback: words };
      await send({ verdict, ...said });
    });
  const judge = ([first, ...also]: CallVerdict[]): Promise<void> =>
    action.run(async () => {
      const { call: _call, ...verdict } = first!;
      await send({ ...verdict, also });
    });
  const send = async (said: Record<string, unknown>): Promise<void> => {
    try {
      await post(`${runPath(run.run)}/answer`, { number: question.number, ...said });
    } catch (error) {
      const problem = error as Problem;
      if (problem.status !== 409) throw error;
      setBeaten(`Somebody answered before you: ${await otherVerdict(run, question.number)}`);
    }
  };
  const calls = pendingCalls(question);
  const isOneByOne = calls.length > 1 || question.what === "effect";
  const blocked = isBlocked(action);
  const reject = (): void => (isRejecting ? void answer("reject") : setRejecting(true));
  return (
    <section class="ny" aria-label="Needs you" aria-live="polite">
      <Icon state="asking" size={22} />
      <div class="ny-what">
        <Wording run={run} question={question} />
        {isOneByOne && (
          <CallVerdicts what={question.what} calls={calls} blocked={blocked} mayAnswer={mayAct()} send={(verdicts) => void judge(verdicts)} />
        )}
        {(isRejecting || takesText(question)) && mayAct() && (
          <textarea ref={box} rows={2} value={text} aria-label={isRejecting ? "Why not?" : "Your answer"} autofocus
            placeholder={isRejecting ? "Why not? The worker reads this." : answerHint(question)}
            onInput={(event) => setText(event.currentTarget.value)} />
        )}
        <Refusal action={action} />
      </div>
      {mayAct() && !isOneByOne && (
        <div class="ny-acts">
          {question.what === "question" && <Options question={question} blocked={blocked} text={text} answer={answer} />}
          {(question.what === "plan" || question.what === "tool") && (
            <>
              {!isRejecting && (
                <button class="primary" id="approve" disabled={blocked} onClick={() => answer("approve", "")}>
                  Approve <kbd>a</kbd>
                </button>
              )}
              <button id="reject" class={isRejecting ? "danger" : ""} disabled={blocked} onClick={reject}>
                {isRejecting ? "Reject" : "Reject …"}
              </button>
              {isRejecting && <button onClick={() => setRejecting(false)}>Back</button>}
              {question.what === "plan" && !isRejecting && <button disabled={blocked} onClick={edit}>Edit …</button>}
            </>
          )}
        </div>
      )}
    </section>
  );
}

/** Whether any words may be an answer: those who give options say whether another one will do. */
const takesText = ({ what, question }: AskedQuestion): boolean =>
  what === "question" && (!question?.options?.length || question.free_text === true);

const schemaOf = (question: AskedQuestion): Schema | undefined => (question.question?.schema ?? undefined) as Schema | undefined;
type Schema = { type?: string; description?: string };

function answerHint(question: AskedQuestion): string {
  const schema = schemaOf(question);
  if (!schema || schema.type === "string") return schema?.description ?? "Your answer";
  return `Your answer as JSON${schema.type ? `, a value of type ${schema.type}` : ""}${schema.description ? `: ${schema.description}` : ""}`;
}

/** The answer to a question in words: text, or JSON where the question has a schema for something else. */
function resultOf(question: AskedQuestion, words: string): unknown {
  const schema = schemaOf(question);
  if (!schema || schema.type === "string") return words;
  try {
    return JSON.parse(words);
  } catch {
    return words; // the server says what is wrong with it
  }
}

async function otherVerdict(run: Run, number: number): Promise<string> {
  for (let tries = 0; tries < 20; tries += 1) {
    const verdict = run.questions.find((question) => question.number === number)?.verdict;
    if (verdict) return VERDICTS[verdict] ?? verdict;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return "it is not asked any more";
}

function Options({ question, blocked, text, answer }: {
  question: AskedQuestion; blocked: boolean; text: string; answer: (verdict: string, words?: string) => Promise<void>;
}): JSX.Element {
  const options = question.question?.options ?? [];
  return (
    <>
      {options.map((option) => <button disabled={blocked} onClick={() => answer("answer", option)}>{option}</button>)}
      {takesText(question) && <button class="primary" disabled={blocked || !text.trim()} onClick={() => answer("answer")}>Answer</button>}
      <button disabled={blocked} onClick={() => answer("reject")}>Not known</button>
    </>
  );
}

function Wording({ run, question }: { run: Run; question: AskedQuestion }): JSX.Element {
  const fields = question.question;
  const worker = fields?.workers?.join(" › ") || run.tasks.get(question.task)?.worker || "A worker";
  if (question.what === "plan") {
    const tasks = planned(run);
    const workers = new Set(tasks.map((task) => task.worker));
    return (
      <>
        <h2>May this plan be carried out?</h2>
        <p>{plural(tasks.length, "task")} for {plural(workers.size, "worker")}. Nothing has been done yet.</p>
      </>
    );
  }
  if (question.what === "question") return <h2>{worker} asks: {fields?.text ?? question.text}</h2>;
  const count = pendingCalls(question).length;
  if (question.what === "effect") {
    return (
      <>
        <h2>Nobody knows whether {count === 1 ? "this call" : `these ${count} calls`} happened</h2>
        <p>{question.text}</p>
      </>
    );
  }
  if (count > 1) return <h2>{worker} wants to make {count} calls</h2>;
  const tool = fields?.tool || /^\w+/.exec(question.text)?.[0] || question.text;
  return (
    <>
      <h2>{worker} wants to call <code>{tool}</code></h2>
      <Arguments values={fields?.arguments ?? {}} />
      <Because because={fields?.because} values={fields?.arguments} earlier={fields?.earlier} />
    </>
  );
}
