import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export type Size = { width: number; height: number };

/** The size of an element, kept up to date. */
export function useSize<Box extends HTMLElement>(): [RefObject<Box | null>, Size] {
  const element = useRef<Box>(null);
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = (): void => {
      const box = element.current;
      if (box) setSize({ width: box.clientWidth, height: box.clientHeight });
    };
    measure();
    const observer = new ResizeObserver(measure);
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}
