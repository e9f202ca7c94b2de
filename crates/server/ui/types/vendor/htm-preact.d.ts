/** What the pages use of htm/preact/standalone, for the type checker alone. State is what the API answers, which has no types here. */
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(node: unknown, parent: Element): void;
export function createContext(initial: any): { Provider: any };
export function useContext(context: { Provider: any }): any;
export function useState(initial: any): [any, (next: any) => void];
export function useEffect(effect: () => unknown, inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => unknown, inputs?: unknown[]): void;
export function useRef(initial: any): { current: any };
export function useCallback<T>(callback: T, inputs: unknown[]): T;
export function useErrorBoundary(told: (error: any) => void): [any, () => void];
