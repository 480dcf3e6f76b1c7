// What a view reads once: from the server, again when it asks for it, and again when the server is back.

import { useEffect, useState } from "preact/hooks";
import { type Problem, get, isOnline } from "./api.ts";

export type Loaded<Reply> = {
  /** Undefined until it came. */
  value?: Reply;
  /** Why it did not come. */
  problem?: Problem;
  reload: () => void;
};

/** An empty path reads nothing. */
export function useGet<Reply>(path: string): Loaded<Reply> {
  const [reply, setReply] = useState<{ path: string; value?: Reply; problem?: Problem }>({ path });
  const [round, setRound] = useState(0);
  const online = isOnline.value;
  useEffect(() => {
    if (!path) return;
    let isWanted = true;
    get<Reply>(path)
      .then((value) => { if (isWanted) setReply({ path, value }); })
      .catch((problem: Problem) => {
        if (isWanted) setReply((before) => ({ path, value: before.path === path ? before.value : undefined, problem }));
      });
    return () => { isWanted = false; };
  }, [path, round, online]);
  const isOther = reply.path !== path;
  return {
    value: isOther ? undefined : reply.value,
    problem: isOther ? undefined : reply.problem,
    reload: () => setRound(round + 1),
  };
}
