"""LangGraph: two nodes in parallel, a third that needs both."""

import operator
import os
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

llm = ChatOpenAI(model="gpt-5-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")


class State(TypedDict):
    facts: Annotated[list[str], operator.add]
    report: str


def stock(state: State) -> dict:
    return {"facts": [llm.invoke("Report the stock:\n12 anvils").text]}


def price(state: State) -> dict:
    return {"facts": [llm.invoke("Report the price:\nanvils cost 80 euros").text]}


def write(state: State) -> dict:
    return {"report": llm.invoke("Write one line from:\n" + "\n".join(state["facts"])).text}


graph = StateGraph(State)
graph.add_node("stock", stock)
graph.add_node("price", price)
graph.add_node("write", write)
graph.add_edge(START, "stock")
graph.add_edge(START, "price")
graph.add_edge(["stock", "price"], "write")
graph.add_edge("write", END)
print(graph.compile().invoke({"facts": [], "report": ""})["report"])
