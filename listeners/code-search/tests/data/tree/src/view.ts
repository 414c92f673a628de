export interface Props { title: string }

export const render = (props: Props): string => {
  const text = `a } brace ${props.title}`;
  return text;
};

export type Size =
  | "small"
  | "large"

const limit = 5

export class View extends Base {
  private title = "login";

  async draw(scale: number): Promise<void> {
    if (scale > 1) {
      return;
    }
  }
  delete(key: string): void {
    for (const each of [key]) {
      new Map().delete(each);
    }
  }
}
