"""Questions in SQuAD's layout on Austen's Pride and Prejudice (1813): files, first row, rows of each split."""

import json

NEWS = (
    "“Why, my dear, you must know, Mrs. Long says that Netherfield is taken by a young man of large fortune from the "
    "north of England; that he came down on Monday in a chaise and four to see the place, and was so much delighted "
    "with it that he agreed with Mr. Morris immediately; that he is to take possession before Michaelmas, and some of "
    "his servants are to be in the house by the end of next week.”\n\n“What is his name?”\n\n“Bingley.”"
)
COUPLE = (
    "  Mr. Bennet was so odd a mixture of quick parts, sarcastic humour, reserve, and caprice, that the experience of "
    "three-and-twenty years had been insufficient to make his wife understand his character. The business of her life "
    "was to get her daughters married; its solace was visiting and news. "
)
BALL = (
    "Mr. Darcy danced only once with Mrs. Hurst and once with Miss Bingley, declined being introduced to any other "
    "lady, and spent the rest of the evening in walking about the room, speaking occasionally to one of his own party."
)
QUESTIONS = {
    NEWS: {
        "Who told of the new neighbour?": "Mrs. Long",
        "Which house is taken?": "Netherfield",
        "How rich is the young man?": "of large fortune",
        "Where does he come from?": "the north of England",
        "On which day did he come?": "Monday",
        "What did he travel in?": "a chaise and four",
        "With whom did he agree?": "Mr. Morris",
        "When will he take possession?": "before Michaelmas",
        "Who will be there next week?": "some of his servants",
        "By when will they be in the house?": "the end of next week",
        "What is the young man called?": "Bingley",
    },
    COUPLE: {
        "Who is an odd mixture?": "Mr. Bennet",
        "What kind of humour has he?": "sarcastic",
        "How long have they been married?": "three-and-twenty years",
        "Who does not understand him?": "his wife",
        "What is the business of her life?": "to get her daughters married",
        "What consoles her?": "visiting and news",
    },
    BALL: {
        "Who danced only twice?": "Mr. Darcy",
        "Who was his first partner?": "Mrs. Hurst",
        "Where did he walk?": "about the room",
    },
}


def squad(questions, **more):
    """The text of a file; `more` are further questions with their answers, as the file has them, by their id."""
    paragraphs = [
        {
            "context": passage,
            "qas": [
                {"id": f"q{number}.{n}", "question": question, "answers": [answer_in(passage, answer)]}
                for n, (question, answer) in enumerate(answers.items(), 1)
            ],
        }
        for number, (passage, answers) in enumerate(questions.items(), 1)
    ]
    paragraphs[0]["qas"] += [{"id": key, "question": "Who?", "answers": answers} for key, answers in more.items()]
    return json.dumps({"version": "1.1", "data": [{"title": "Pride and Prejudice", "paragraphs": paragraphs}]})


def answer_in(passage, text):
    return {"text": text, "answer_start": passage.index(text)}


FORMATS = {
    "squad": (
        {
            "train-v1.1.json": squad(QUESTIONS),
            "dev-v1.1.json.xz": squad(
                {BALL: QUESTIONS[BALL]}, both=[answer_in(BALL, "Mr. Darcy"), answer_in(BALL, "his own")]
            ),
        },
        {
            "id": "q1.1",
            "question": "Who told of the new neighbour?",
            "passage": NEWS,
            "answers": ["Mrs. Long"],
            "label": [30, 39],
        },
        {"train": 20, "validation": 4},
    ),
}
